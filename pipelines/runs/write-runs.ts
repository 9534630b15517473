import type { RunRow } from './read-run-rows.ts';
import { type RunFieldName, type RunSurroundings, runFields } from './run-fields.ts';

/** JSON text that grows. Stored values go in as the bytes that they are; what stands between them is joined. */
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
export function writeRun(
  json: JsonChunks,
  run: RunRow,
  fields: readonly RunFieldName[],
  around: RunSurroundings,
): void {
  let before = '{';
  for (const name of fields) {
    json.add(`${before}"${name}":`);
    json.add(runFields[name].json(run, around));
    before = ',';
  }
  json.add('}');
}
