import type { EncodeRequest, ListRequest, ParquetFacts } from './encode-request.ts';

/** Message of the parent. */
export type ChildRequest = { readonly number: number } & Work;

export type Work =
  | { readonly kind: 'encode'; readonly request: EncodeRequest }
  | { readonly kind: 'list'; readonly request: ListRequest }
  | { readonly kind: 'inspect'; readonly request: { readonly folder: string; readonly source: string } };

/** Response of the child. Number 0, without other fields, means that the child has started. */
export interface ChildAnswer {
  readonly number: number;
  readonly facts?: ParquetFacts | undefined;
  /** DuckDB's error message. */
  readonly reason?: string;
}
