import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

const tailBytes = 64 * 1024;
const maxLineLength = 500;

/** Returns the last error in ClickHouse's error log, if the log was written after `sinceMs` (Unix time, ms). Never throws. */
export function lastError(path: string, sinceMs: number): string | undefined {
  try {
    const file = openSync(path, 'r');
    try {
      const { size, mtimeMs } = fstatSync(file);
      if (mtimeMs < sinceMs) return undefined;
      const tail = Buffer.alloc(Math.min(size, tailBytes));
      readSync(file, tail, 0, tail.length, size - tail.length);
      const lines = tail.toString('utf8').split('\n');
      return lines.findLast((line) => /<(Error|Fatal|Critical)>/.test(line))?.slice(0, maxLineLength);
    } finally {
      closeSync(file);
    }
  } catch {
    return undefined;
  }
}
