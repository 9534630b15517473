import type { Readable } from 'node:stream';

const keptLines = 20;
const longestLine = 500;

/** Keeps the last lines of a child's standard error, bounded, for the sentence that says why it ended. */
export class LastLines {
  #lines: string[] = [];
  #open = '';

  constructor(source: Readable | null, onLine: (line: string) => void = () => {}) {
    source?.setEncoding('utf8');
    source?.on('data', (chunk: string) => {
      const parts = (this.#open + chunk).split('\n');
      this.#open = (parts.pop() ?? '').slice(0, longestLine);
      for (const part of parts) {
        const line = part.trim().slice(0, longestLine);
        if (line === '') continue;
        this.#lines.push(line);
        if (this.#lines.length > keptLines) this.#lines.shift();
        onLine(line);
      }
    });
    // A broken pipe is the end of the child, which is noticed elsewhere.
    source?.on('error', () => {});
  }

  /** The last line that `matches`. */
  last(matches: RegExp): string | undefined {
    const lines = this.#open.trim() === '' ? this.#lines : [...this.#lines, this.#open.trim()];
    return lines.findLast((line) => matches.test(line));
  }
}
