import type { StoredTuple } from './stored-tuples.ts';

/** What a page of checkpoints is to be about, unless one alone has more. */
const pageBytes = 4 * 1024 * 1024;
const mostRows = 64;

/** How many checkpoints to read at a time: of large ones few, which is known from those before them. The first is read alone. */
export class PageSizes {
  #rows = 0;
  #bytes = 0;

  get nextRows(): number {
    if (this.#rows === 0) return 1;
    return Math.max(1, Math.min(mostRows, Math.floor((pageBytes * this.#rows) / Math.max(1, this.#bytes))));
  }

  note(rows: readonly Pick<StoredTuple, 'blob_bytes' | 'write_bytes'>[]): void {
    this.#rows = rows.length;
    this.#bytes = 0;
    for (const { blob_bytes, write_bytes } of rows) {
      this.#bytes += (blob_bytes?.length ?? 0) + (write_bytes?.length ?? 0);
    }
  }
}
