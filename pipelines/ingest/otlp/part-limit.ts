import { runlakeError } from '../../../infra/errors/runlake-error.ts';

/** Attributes, events and links allowed per request, as a multiple of `maxParts`. */
const detailsPerPart = 50;
/** JSON values allowed per request, as a multiple of `maxParts`. An attribute of a span is four values. */
const valuesPerPart = 100;
/**
 * Every JSON object may have this many members, even if `maxParts` is smaller. OTLP messages have up to twenty fields.
 */
const minMembers = 1_000;
/**
 * Every request may have this many attributes, events and links, and this many JSON values, even if `maxParts` is
 * small.
 */
const minLimitPerRequest = 100_000;

/**
 * Maximum number of JSON values of one span, resource or scope. The limit exists because a reader does not yield the
 * event loop within one of them.
 */
const maxValuesOfOne = 1_000_000;
/**
 * Maximum number of attributes, events or links of one span, resource or scope, and of attributes of one event or
 * key-value list.
 */
const maxDetailsOfOne = 100_000;

/** Counts messages of one kind and enforces their limit. */
export class PartLimit {
  readonly #max: number;
  readonly #limit: string;
  #count = 0;

  constructor(max: number, limit: string) {
    this.#max = max;
    this.#limit = limit;
  }

  /** Restarts the count, for the next span, resource or scope. */
  reset(): void {
    this.#count = 0;
  }

  /** @throws TOO_MANY_PARTS when the count exceeds the limit. */
  add(count = 1): void {
    this.#count += count;
    if (this.#count > this.#max) throw runlakeError('TOO_MANY_PARTS', { limitParts: this.#max, limit: this.#limit });
  }
}

/** Limits resources, scopes or spans. */
export function partLimit(maxParts: number): PartLimit {
  return new PartLimit(maxParts, 'the limit of one request');
}

/**
 * Limits attributes, events and links. Each is counted every time it is read, because the limit bounds work, not only
 * content.
 */
export function createDetailLimit(maxParts: number): PartLimit {
  return createPartLimit('attributes, events and links', maxParts, detailsPerPart);
}

/** Limits the JSON values of a request, before objects are created. */
export function createValueLimit(maxParts: number): PartLimit {
  return createPartLimit('JSON values', maxParts, valuesPerPart);
}

/** Limits the JSON values of one span, resource or scope. */
export function createOwnValueLimit(): PartLimit {
  return new PartLimit(maxValuesOfOne, 'JSON values of one span, resource or scope');
}

/** Limits the members of one JSON object, including unknown members. @throws TOO_MANY_PARTS if `count` is too high. */
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

/** @throws TOO_MANY_PARTS if one message already has the maximum number of attributes, events or links. */
export function requireCapacity(count: number): void {
  if (count < maxDetailsOfOne) return;
  const limit = 'attributes, events or links of one span, resource or scope';
  throw runlakeError('TOO_MANY_PARTS', { limitParts: maxDetailsOfOne, limit });
}
