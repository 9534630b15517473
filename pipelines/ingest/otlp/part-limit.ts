import { runlakeError } from '../../../infra/errors/runlake-error.ts';

/** Number of attributes, events, links and array elements allowed per request, as a multiple of `maxParts`. */
const detailsPerPart = 50;
/**
 * Number of JSON values allowed per request, as a multiple of `maxParts`. An attribute of a span consists of four
 * values.
 */
const valuesPerPart = 100;
/**
 * Number of members that every JSON object may have, even if `maxParts` is smaller. OTLP messages have up to twenty
 * fields.
 */
const minMembers = 1_000;
/**
 * Number of attributes, events, links and array elements, and number of JSON values, that every request may have, even
 * if `maxParts` is small.
 */
const minLimitPerRequest = 100_000;

/**
 * Maximum number of JSON values in one span, resource or scope, and of elements of one array. The limit exists because a
 * reader does not yield to the event loop while it reads one of these messages.
 */
const maxValuesPerMessage = 1_000_000;
/**
 * Maximum number of attributes, events or links of one span, resource or scope, and maximum number of attributes of one
 * event or key-value list.
 */
const maxDetailsPerMessage = 100_000;

/** Counts messages of one kind and enforces their limit. */
export class PartLimit {
  readonly #max: number;
  readonly #limit: string;
  readonly #addItem: (() => void) | undefined;
  #count = 0;

  constructor(max: number, limit: string, addItem?: () => void) {
    this.#max = max;
    this.#limit = limit;
    this.#addItem = addItem;
  }

  /** Resets the count for the next span, resource or scope. */
  reset(): void {
    this.#count = 0;
  }

  /** Counts one message. @throws TOO_MANY_PARTS when the count exceeds the limit. */
  add(): void {
    this.#count += 1;
    if (this.#count > this.#max) throw runlakeError('TOO_MANY_PARTS', { limitParts: this.#max, limit: this.#limit });
    this.#addItem?.();
  }
}

/** Creates the limit for resources, scopes or spans. Calls `addItem` for each of them. */
export function createRequestPartLimit(maxParts: number, addItem?: () => void): PartLimit {
  return new PartLimit(maxParts, 'the limit of one request', addItem);
}

/**
 * Creates the limit for attributes, events, links and array elements. Each of them is counted every time it is read, because the limit
 * bounds the work and not only the content.
 */
export function createDetailLimit(maxParts: number): PartLimit {
  return createPartLimit('attributes, events, links and array elements', maxParts, detailsPerPart);
}

/** Creates the limit for the JSON values of a request, which applies before objects are created. */
export function createValueLimit(maxParts: number): PartLimit {
  return createPartLimit('JSON values', maxParts, valuesPerPart);
}

/** Creates the limit for the JSON values of one span, resource or scope. */
export function createMessageValueLimit(): PartLimit {
  return new PartLimit(maxValuesPerMessage, 'JSON values of one span, resource or scope');
}

/**
 * Enforces the limit on the members of one JSON object, including unknown members.
 *
 * @throws TOO_MANY_PARTS if `count` is too high.
 */
export function enforceMemberLimit(count: number, maxParts: number): void {
  if (count <= minMembers || count <= maxParts) return;
  const limitParts = Math.max(minMembers, maxParts);
  throw runlakeError('TOO_MANY_PARTS', { limitParts, limit: 'members of one JSON object' });
}

function createPartLimit(what: string, maxParts: number, each: number): PartLimit {
  return new PartLimit(
    Math.max(minLimitPerRequest, each * maxParts),
    `${what}; ${each} for each part that a request may have`,
  );
}

/**
 * Checks that one message may have a further attribute, event or link.
 *
 * @throws TOO_MANY_PARTS if the message already has the maximum number of them.
 */
export function requireCapacity(count: number): void {
  if (count < maxDetailsPerMessage) return;
  const limit = 'attributes, events or links of one span, resource or scope';
  throw runlakeError('TOO_MANY_PARTS', { limitParts: maxDetailsPerMessage, limit });
}

/**
 * Checks that one array may have a further element. Arrays may be longer than lists of attributes, because they contain
 * vectors.
 *
 * @throws TOO_MANY_PARTS if the array already has the maximum number of elements.
 */
export function requireElementCapacity(count: number): void {
  if (count < maxValuesPerMessage) return;
  throw runlakeError('TOO_MANY_PARTS', { limitParts: maxValuesPerMessage, limit: 'array elements' });
}
