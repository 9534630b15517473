import type { RunRow } from './read-run-rows.ts';
import { type RelatedData, type RunFieldName, runFields } from './run-fields.ts';

/** Builds JSON text. Stored values are added as unchanged bytes; consecutive strings are joined. */
export class JsonChunks {
  readonly #chunks: Buffer[] = [];
  #pending = '';

  add(value: string | Buffer): void {
    if (typeof value === 'string') {
      this.#pending += value;
      return;
    }
    this.#flush();
    this.#chunks.push(value);
  }

  /** The whole text, in UTF-8. */
  toBuffer(): Buffer {
    this.#flush();
    return Buffer.concat(this.#chunks);
  }

  #flush(): void {
    if (this.#pending !== '') this.#chunks.push(Buffer.from(this.#pending));
    this.#pending = '';
  }
}

/** Appends one run as a JSON object with `fields`. */
export function writeRun(json: JsonChunks, run: RunRow, fields: readonly RunFieldName[], related: RelatedData): void {
  let before = '{';
  for (const name of fields) {
    json.add(`${before}"${name}":`);
    json.add(runFields[name].json(run, related));
    before = ',';
  }
  json.add('}');
}
