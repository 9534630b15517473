import { createReadStream } from 'node:fs';
import { type FileHandle, open, rm } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { workFileError } from '../../../infra/errors/work-file-error.ts';

/** One CSV line (RFC 4180) with all values quoted; an absent value is empty. */
export function csvLine(values: readonly (string | undefined)[]): string {
  return `${values.map((value) => (value === undefined ? '' : `"${value.replaceAll('"', '""')}"`)).join(',')}\n`;
}

/** A file to append lines to. Every method throws WORK_FILE_UNUSABLE if writing fails. */
export class LineFile {
  maxLineBytes = 0;
  readonly #path: string;
  #file: FileHandle | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /** Each line includes its line end. */
  async write(lines: readonly string[]): Promise<void> {
    for (const line of lines) this.maxLineBytes = Math.max(this.maxLineBytes, Buffer.byteLength(line));
    try {
      this.#file ??= await open(this.#path, 'w', 0o600);
      await this.#file.appendFile(lines.join(''));
    } catch (error) {
      throw workFileError(this.#path, error);
    }
  }

  async close(): Promise<void> {
    await this.#file?.close().catch((error: unknown) => {
      throw workFileError(this.#path, error);
    });
    this.#file = undefined;
  }

  async remove(): Promise<void> {
    await this.#file?.close().catch(() => {});
    await rm(this.#path, { force: true });
  }
}

/** Reads a file line by line. @throws WORK_FILE_UNUSABLE. */
export async function* readLines(path: string): AsyncGenerator<string> {
  const stream = createReadStream(path);
  try {
    for await (const line of createInterface({ input: stream, crlfDelay: Number.POSITIVE_INFINITY })) yield line;
  } catch (error) {
    throw workFileError(path, error);
  } finally {
    stream.destroy();
  }
}
