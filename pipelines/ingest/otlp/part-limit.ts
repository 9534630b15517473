import { fault } from '../../../infra/errors/runlake-error.ts';

/** Attributes, events and links that a request may hold for each of its parts. */
const detailsPerPart = 50;
/** Values of OTLP/JSON for each part: an attribute of a span is four. */
const valuesPerPart = 100;
/** What every object of JSON may hold: the messages of OTLP have twenty fields. */
const leastMembers = 1_000;
/** What every request may hold of them, however few its parts. */
const leastDetails = 100_000;

/** Most JSON values of one span, resource or scope: reading one is not interrupted. */
const maxValuesOfOne = 1_000_000;
/** Most attributes, events or links of one span, resource or scope, and most attributes of one event or list of keys. */
const maxDetailsOfOne = 100_000;

/** Counts the messages of one kind over a whole request. */
export class PartLimit {
  readonly #most: number;
  readonly #limit: string;
  #count = 0;

  constructor(most: number, limit: string) {
    this.#most = most;
    this.#limit = limit;
  }

  /** Begins again, for the next of what is counted. */
  reset(): void {
    this.#count = 0;
  }

  /** @throws TOO_MANY_PARTS as soon as there are more than the limit. */
  add(count = 1): void {
    this.#count += count;
    if (this.#count > this.#most) throw fault('TOO_MANY_PARTS', { limitParts: this.#most, limit: this.#limit });
  }
}

/** Counts resources, scopes or spans. */
export function partLimit(maxParts: number): PartLimit {
  return new PartLimit(maxParts, 'RUNLAKE_MAX_PARTS');
}

/** Counts attributes, events and links each time they are read: it bounds work, not only content. */
export function detailLimit(maxParts: number): PartLimit {
  return perPart('attributes, events and links', maxParts, detailsPerPart);
}

/** Counts the values of OTLP/JSON, before objects are made of them. */
export function valueLimit(maxParts: number): PartLimit {
  return perPart('JSON values', maxParts, valuesPerPart);
}

/** Counts the JSON values of one span, resource or scope besides. */
export function ownValueLimit(): PartLimit {
  return new PartLimit(maxValuesOfOne, 'JSON values of one span, resource or scope');
}

/** Most members of one object of OTLP/JSON, known or not. @throws TOO_MANY_PARTS where `count` is more. */
export function requireFewMembers(count: number, maxParts: number): void {
  if (count <= leastMembers || count <= maxParts) return;
  const limit = `members of one JSON object; RUNLAKE_MAX_PARTS, at least ${leastMembers}`;
  throw fault('TOO_MANY_PARTS', { limitParts: Math.max(leastMembers, maxParts), limit });
}

function perPart(what: string, maxParts: number, each: number): PartLimit {
  return new PartLimit(Math.max(leastDetails, each * maxParts), `${what}; ${each} for each of RUNLAKE_MAX_PARTS`);
}

/** @throws TOO_MANY_PARTS where one message already holds `count` of its attributes, events or links. */
export function requireRoom(count: number): void {
  if (count < maxDetailsOfOne) return;
  const limit = 'attributes, events or links of one span, resource or scope';
  throw fault('TOO_MANY_PARTS', { limitParts: maxDetailsOfOne, limit });
}
