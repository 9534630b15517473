import type { StoredTuple } from './stored-tuples.ts';

/** Target size of a page of checkpoints. A single checkpoint can be larger. */
const pageBytes = 4 * 1024 * 1024;
const maxRows = 64;

/** Chooses the number of rows of the next page from the average row size of the last one. The first page has one row. */
export class PageSizes {
  #rows = 0;
  #bytes = 0;

  get nextRows(): number {
    if (this.#rows === 0) return 1;
    return Math.max(1, Math.min(maxRows, Math.floor((pageBytes * this.#rows) / Math.max(1, this.#bytes))));
  }

  record(rows: readonly Pick<StoredTuple, 'blob_bytes' | 'write_bytes'>[]): void {
    this.#rows = rows.length;
    this.#bytes = 0;
    for (const { blob_bytes, write_bytes } of rows) {
      this.#bytes += (blob_bytes?.length ?? 0) + (write_bytes?.length ?? 0);
    }
  }
}
