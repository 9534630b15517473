/** One event of a stream as the stock client returns it. */
export interface Part {
  readonly id?: string | undefined;
  readonly event: string;
  readonly data: unknown;
}

/** Reads a stream to its end. */
export async function all(stream: AsyncIterable<unknown>): Promise<Part[]> {
  const parts: Part[] = [];
  for await (const part of stream) parts.push(part as Part);
  return parts;
}

/** Returns the numbers that the graph `burst` wrote. */
export const numbers = (parts: readonly Part[]) =>
  parts.filter(({ event }) => event === 'custom').map(({ data }) => (data as { i: number }).i);

/** Returns the numbers from 0 up to, but not including, `n`. */
export const listNumbers = (n: number) => Array.from({ length: n }, (_, index) => index);
