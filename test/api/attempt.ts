/** A request of a stranger in the tenancy test. */
export interface Attempt {
  readonly url: string;
  readonly payload?: object | string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Statuses that a caller without access to the resource may get. Default: {@link closed}. */
  readonly answers?: readonly number[];
}

export const closed = [403, 404];
export const own = [200];

/** Field of an error that has its text. */
export const textFields = {
  detail: 'detail',
  error: 'error',
  problem: 'detail',
  otlp: 'message',
  'json-rpc': 'detail',
  mcp: 'error',
} as const;
