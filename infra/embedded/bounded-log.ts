import { appendFileSync, renameSync, statSync } from 'node:fs';

/** Appends lines to a file of its owner (0600). At `limitBytes` the file becomes `<path>.1`, in place of the one before. */
export class BoundedLog {
  readonly #path: string;
  readonly #limitBytes: number;
  #sizeBytes: number;

  constructor(path: string, limitBytes: number) {
    this.#path = path;
    this.#limitBytes = limitBytes;
    this.#sizeBytes = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  }

  /** Never throws: an engine goes on where its log cannot be written, as on a full disk. */
  write(line: string): void {
    try {
      if (this.#sizeBytes >= this.#limitBytes) {
        renameSync(this.#path, `${this.#path}.1`);
        this.#sizeBytes = 0;
      }
      const text = `${line}\n`;
      appendFileSync(this.#path, text, { mode: 0o600 });
      this.#sizeBytes += Buffer.byteLength(text);
    } catch {
      // See above.
    }
  }
}
