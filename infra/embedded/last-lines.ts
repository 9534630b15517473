import type { Readable } from 'node:stream';

const maxLines = 20;
const maxLineLength = 500;

/** Keeps the last lines of a child's stderr, within limits, to explain why the child exited. */
export class LastLines {
  #lines: string[] = [];
  #open = '';

  constructor(source: Readable | null, onLine: (line: string) => void = () => {}) {
    source?.setEncoding('utf8');
    source?.on('data', (chunk: string) => {
      const parts = (this.#open + chunk).split('\n');
      this.#open = (parts.pop() ?? '').slice(0, maxLineLength);
      for (const part of parts) {
        const line = part.trim().slice(0, maxLineLength);
        if (line === '') continue;
        this.#lines.push(line);
        if (this.#lines.length > maxLines) this.#lines.shift();
        onLine(line);
      }
    });
    // A broken pipe means that the child has exited, which is handled elsewhere.
    source?.on('error', () => {});
  }

  /** Returns the last line that matches. */
  last(matches: RegExp): string | undefined {
    const lines = this.#open.trim() === '' ? this.#lines : [...this.#lines, this.#open.trim()];
    return lines.findLast((line) => matches.test(line));
  }
}
