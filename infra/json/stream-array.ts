import { Readable } from 'node:stream';
import { readForTenant } from '../fairness/tenant-context.ts';

/** Streams JSON texts, each as it is read, as a JSON array, for the organisation of the current work. */
export function streamJsonArray(texts: AsyncIterable<string>): Readable {
  async function* generateParts() {
    let separator = '[';
    for await (const text of texts) {
      yield separator + text;
      separator = ',';
    }
    yield separator === '[' ? '[]' : ']';
  }
  return Readable.from(readForTenant(generateParts()));
}
