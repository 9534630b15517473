import type { EncodeRequest, ListRequest, ParquetFacts } from './encode-request.ts';

/** What the parent sends. */
export type ChildRequest = { readonly number: number } & Work;

export type Work =
  | { readonly kind: 'encode'; readonly request: EncodeRequest }
  | { readonly kind: 'list'; readonly request: ListRequest }
  | { readonly kind: 'inspect'; readonly request: { readonly folder: string; readonly source: string } };

/** What the child answers; number 0 without anything: it is up. */
export interface ChildAnswer {
  readonly number: number;
  readonly facts?: ParquetFacts | undefined;
  /** Why it failed, in DuckDB's words. */
  readonly reason?: string;
}
