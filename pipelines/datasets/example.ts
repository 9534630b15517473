import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { TokenSigner } from '../../infra/signing/token-signer.ts';
import { type AttachmentLocation, exampleAttachmentUrls } from '../attachments/attachment-sets.ts';

/** State of an example in a version. JSON is text, as it was sent. */
export interface ExampleRow {
  readonly id: string;
  readonly dataset_id: string;
  readonly valid_from: string;
  readonly created_at: string;
  readonly inputs: string;
  readonly outputs: string | null;
  readonly metadata: string;
  readonly source_run_id: string | null;
  readonly attachments: Readonly<Record<string, AttachmentLocation>>;
}

/** Fields that a request can leave out. The other fields are always returned. */
export const selectableFields = ['source_run_id', 'metadata', 'outputs', 'attachment_urls'] as const;
export type SelectableField = (typeof selectableFields)[number];
export const alwaysFields = ['id', 'name', 'dataset_id', 'created_at', 'modified_at', 'inputs'] as const;

/** Signs the links of attachments; a link is `linkBase` with a token appended. */
export interface ExampleLinks {
  readonly signer: TokenSigner;
  readonly linkBase: string;
}

/** Formats an example as JSON. `more` is appended: further members, each with a leading comma. */
export function formatExample(
  workspaceId: string,
  row: ExampleRow,
  fields: ReadonlySet<SelectableField>,
  links: ExampleLinks,
  more = '',
): string {
  const { id, dataset_id, created_at, valid_from: modified_at } = row;
  const fixed = JSON.stringify({ id, name: `#${id.slice(0, 8)}`, dataset_id, created_at, modified_at });
  const members = [
    `${fixed.slice(0, -1)},"inputs":${row.inputs}`,
    ...(fields.has('outputs') ? [`"outputs":${row.outputs ?? 'null'}`] : []),
    ...(fields.has('metadata') ? [`"metadata":${row.metadata}`] : []),
    ...(fields.has('source_run_id') ? [`"source_run_id":${JSON.stringify(row.source_run_id)}`] : []),
    ...(fields.has('attachment_urls')
      ? [`"attachment_urls":${JSON.stringify(exampleAttachmentUrls(links, workspaceId, row.attachments))}`]
      : []),
  ];
  return `${members.join(',')}${more}}`;
}

/** Key of the splits of an example in its metadata, where clients read and write them. */
export const splitKey = 'dataset_split';
export const defaultSplit = 'base';

type JsonObject = Readonly<Record<string, unknown>>;

/**
 * Returns the metadata with the splits of the example: the given ones, else those in `metadata`, else the former ones,
 * else `base`.
 */
export function withSplits(
  metadata: JsonObject,
  given: string | readonly string[] | null | undefined,
  former?: unknown,
): JsonObject {
  const splits = given ?? metadata[splitKey] ?? former ?? defaultSplit;
  return { ...metadata, [splitKey]: Array.isArray(splits) ? [...new Set(splits)] : [splits] };
}

/** Maximum nesting of JSON: metadata is formatted again, and validation is recursive. */
export const maxExampleDepth = 1_000;

export function createExampleError(example: string, reason: string): Error {
  return runlakeError('INVALID_EXAMPLE', { example, reason });
}
