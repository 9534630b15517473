/** One event of a stream as the stock client gives it. */
export interface Part {
  readonly id?: string | undefined;
  readonly event: string;
  readonly data: unknown;
}

/** All of a stream, once it has ended. */
export async function all(stream: AsyncIterable<unknown>): Promise<Part[]> {
  const parts: Part[] = [];
  for await (const part of stream) parts.push(part as Part);
  return parts;
}

/** What the graph `burst` wrote. */
export const numbers = (parts: readonly Part[]) =>
  parts.filter(({ event }) => event === 'custom').map(({ data }) => (data as { i: number }).i);

/** From 0, without `n`. */
export const upTo = (n: number) => Array.from({ length: n }, (_, place) => place);
