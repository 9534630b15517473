import { appendFileSync, renameSync, statSync } from 'node:fs';

/**
 * Appends lines to a private file (mode 0600). At `limitBytes` the file is renamed to `<path>.1`, which replaces an
 * older one.
 */
export class BoundedLog {
  readonly #path: string;
  readonly #limitBytes: number;
  #sizeBytes: number;

  constructor(path: string, limitBytes: number) {
    this.#path = path;
    this.#limitBytes = limitBytes;
    this.#sizeBytes = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  }

  /** Never throws: an engine continues even if its log cannot be written, for example on a full disk. */
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
