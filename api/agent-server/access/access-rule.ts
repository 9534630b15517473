import type { Questions } from './questions.ts';

export type Values = Readonly<Record<string, unknown>>;
/** Input that fits the schema of the operation. */
export interface RuledInput {
  readonly params: Readonly<Record<string, string>>;
  readonly query: Values;
  readonly body: Values;
}

type Go = (changes?: { readonly query?: unknown; readonly body?: unknown }) => Promise<unknown>;

/** What is asked before an operation, and how its input and its answer are narrowed. */
export type Rule = (input: RuledInput, ask: Questions, go: Go) => Promise<unknown>;
