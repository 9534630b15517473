import type { KafkaRecord } from './record-of.ts';

export interface BatchLimits {
  readonly rows: number;
  readonly bytes: number;
}

/** Fetched records of one partition that are not handled yet, in log order and without repeats. */
export class RecordBuffer {
  #records: KafkaRecord[] = [];
  #bytes = 0;
  #nextOffset: number | undefined;

  get bytes(): number {
    return this.#bytes;
  }

  get isEmpty(): boolean {
    return this.#records.length === 0;
  }

  get firstOffset(): number | undefined {
    return this.#records[0]?.offset;
  }

  get lastOffset(): number | undefined {
    return this.#records.at(-1)?.offset;
  }

  /** Offset that the next added records must continue from; undefined before {@link RecordBuffer.begin}. */
  get nextOffset(): number | undefined {
    return this.#nextOffset;
  }

  /** Sets the first offset to handle and drops earlier records. */
  begin(offset: number): void {
    this.#records = this.#records.filter((record) => record.offset >= offset);
    this.#bytes = bytesOf(this.#records);
    this.#nextOffset = Math.max(offset, (this.lastOffset ?? -1) + 1);
  }

  add(records: readonly KafkaRecord[]): void {
    const fresh = this.#nextOffset ?? (this.lastOffset ?? -1) + 1;
    for (const record of records) {
      if (record.offset < fresh) continue;
      this.#records.push(record);
      this.#bytes += record.bytes;
    }
    if (this.#nextOffset !== undefined) this.#nextOffset = Math.max(fresh, (this.lastOffset ?? -1) + 1);
  }

  clear(): void {
    this.#records = [];
    this.#bytes = 0;
  }

  /** Takes the next records up to `limits`; a record that exceeds them is taken alone. */
  take(limits: BatchLimits): KafkaRecord[] {
    let rows = 0;
    let bytes = 0;
    for (const { value } of this.#records) {
      if (rows > 0 && (rows >= limits.rows || bytes + value.length > limits.bytes)) break;
      rows++;
      bytes += value.length;
    }
    return this.#remove(rows);
  }

  /**
   * Takes exactly the records from offset `first` to `last`.
   * @returns undefined if the buffer does not hold all of them; it then keeps its records.
   */
  takeExactly(first: number, last: number): KafkaRecord[] | undefined {
    const rows = this.#records.findIndex(({ offset }) => offset === last) + 1;
    return rows > 0 && this.firstOffset === first ? this.#remove(rows) : undefined;
  }

  #remove(rows: number): KafkaRecord[] {
    const taken = this.#records.splice(0, rows);
    this.#bytes -= bytesOf(taken);
    return taken;
  }
}

function bytesOf(records: readonly KafkaRecord[]): number {
  return records.reduce((sum, record) => sum + record.bytes, 0);
}
