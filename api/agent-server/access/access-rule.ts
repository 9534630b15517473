import type { Questions } from './questions.ts';

export type Values = Readonly<Record<string, unknown>>;
/** Input that is already validated against the schema of the operation. */
export interface RuledInput {
  readonly params: Readonly<Record<string, string>>;
  readonly query: Values;
  readonly body: Values;
}

type Proceed = (changes?: { readonly query?: unknown; readonly body?: unknown }) => Promise<unknown>;

/**
 * Authorises an operation under custom authentication: runs checks, then calls `proceed` with the input, possibly
 * restricted. Resolves with the response.
 */
export type Rule = (input: RuledInput, ask: Questions, proceed: Proceed) => Promise<unknown>;
