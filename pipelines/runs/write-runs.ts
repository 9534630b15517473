import type { RunColumn } from './run-columns.ts';
import type { RelatedData, RelatedKind, RunField } from './run-fields.ts';
import type { TracedRunRow } from './run-rows.ts';

/** The fields of a response, and the data that must be read for them. */
export interface Selection {
  /** The form in which each field of {@link fields} is written. */
  readonly form: Readonly<Record<string, RunField>>;
  readonly fields: readonly string[];
  readonly columns: ReadonlySet<RunColumn>;
  readonly relatedKinds: ReadonlySet<RelatedKind>;
}

const maxPendingCharacters = 65_536;

/** Builds JSON text. Stored values are added as unchanged bytes; consecutive strings are joined. */
export class JsonChunks {
  readonly #chunks: Buffer[] = [];
  #pending = '';
  #flushedBytes = 0;

  /** Size of the text so far. Of the last strings, characters are counted as bytes. */
  get bytes(): number {
    return this.#flushedBytes + this.#pending.length;
  }

  add(value: string | Buffer): void {
    if (typeof value === 'string') {
      this.#pending += value;
      if (this.#pending.length > maxPendingCharacters) this.#flush();
      return;
    }
    this.#flush();
    this.#push(value);
  }

  /** Returns the whole text, in UTF-8. */
  toBuffer(): Buffer {
    this.#flush();
    return Buffer.concat(this.#chunks);
  }

  #flush(): void {
    if (this.#pending !== '') this.#push(Buffer.from(this.#pending));
    this.#pending = '';
  }

  #push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#flushedBytes += chunk.length;
  }
}

/** Appends one run as a JSON object with the selected fields. */
export function writeRun(
  json: JsonChunks,
  run: TracedRunRow,
  { form, fields }: Pick<Selection, 'form' | 'fields'>,
  related: RelatedData,
): void {
  let before = '{';
  for (const name of fields) {
    json.add(`${before}"${name}":`);
    json.add(form[name]?.json(run, related) ?? 'null');
    before = ',';
  }
  json.add('}');
}
