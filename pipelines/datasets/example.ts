import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { JsonObject } from '../../infra/json/json-value.ts';
import type { TokenSigner } from '../../infra/signing/token-signer.ts';
import type { Tables } from '../../schemas/tables.ts';
import { type AttachmentLocation, buildExampleAttachmentUrls } from '../attachments/attachment-sets.ts';

/** State of an example in one version of its dataset. JSON values are stored as the text that the client sent. */
export interface ExampleRow
  extends Omit<Tables['examples'], 'workspace_id' | 'valid_to' | 'searchable' | 'attachments'> {
  readonly attachments: Readonly<Record<string, AttachmentLocation>>;
}

/** Fields that responses contain unless the request excludes them. */
export const defaultFields = ['name', 'dataset_id', 'created_at', 'modified_at', 'inputs'] as const;
/** Fields that a response may contain besides the id, in their order. */
export const exampleFields = [...defaultFields, 'outputs', 'metadata', 'source_run_id', 'attachment_urls'] as const;
export type ExampleField = (typeof exampleFields)[number];
export const allExampleFields: ReadonlySet<ExampleField> = new Set(exampleFields);
/**
 * Fields of examples that are returned for a shared dataset. Links to attachments are omitted, because they would
 * remain valid after the sharing has ended.
 */
export const publicExampleFields = [...defaultFields, 'metadata', 'outputs'] as const;

/** Settings for attachment links. A link consists of `linkBase` and a token that `signer` signs. */
export interface ExampleLinkDeps {
  readonly signer: TokenSigner;
  readonly linkBase: string;
  /** If present, the links end with this share; see `identifyShare`. */
  readonly share?: string;
}

type WriteField = (row: ExampleRow, workspaceId: string, links: ExampleLinkDeps) => string;

/** Functions that return the value of a field as JSON. */
const fieldWriters: { readonly [F in ExampleField]: WriteField } = {
  name: ({ id }) => `"#${id.slice(0, 8)}"`,
  dataset_id: (row) => JSON.stringify(row.dataset_id),
  created_at: (row) => JSON.stringify(row.created_at),
  modified_at: (row) => JSON.stringify(row.valid_from),
  inputs: (row) => row.inputs,
  outputs: (row) => row.outputs ?? 'null',
  metadata: (row) => row.metadata,
  source_run_id: (row) => JSON.stringify(row.source_run_id),
  attachment_urls: (row, workspaceId, links) =>
    JSON.stringify(buildExampleAttachmentUrls(links, workspaceId, row.attachments)),
};

/** Formats an example as JSON. `more` contains further members to append, each with a leading comma. */
export function formatExample(
  workspaceId: string,
  row: ExampleRow,
  fields: ReadonlySet<ExampleField>,
  links: ExampleLinkDeps,
  more = '',
): string {
  const members = exampleFields
    .filter((field) => fields.has(field))
    .map((field) => `,"${field}":${fieldWriters[field](row, workspaceId, links)}`);
  return `{"id":"${row.id}"${members.join('')}${more}}`;
}

/** Metadata key that contains the splits of an example. Clients read and write the splits under this key. */
export const splitKey = 'dataset_split';
export const defaultSplit = 'base';

/**
 * Returns the metadata including the splits of the example. The splits are taken from the first of these sources that
 * has them: the given splits, `metadata`, the former splits; otherwise `base` is used.
 */
export function addSplits(
  metadata: JsonObject,
  given: string | readonly string[] | null | undefined,
  former?: unknown,
): JsonObject {
  const splits = given ?? metadata[splitKey] ?? former ?? defaultSplit;
  return { ...metadata, [splitKey]: Array.isArray(splits) ? [...new Set(splits)] : [splits] };
}

/** Maximum nesting depth of JSON. It is limited because metadata is formatted again and validation is recursive. */
export const maxExampleDepth = 1_000;

/**
 * Checks the total size of what a request copies into examples in addition to its body. All of it is in memory together.
 *
 * @throws BAD_REQUEST
 */
export function requireWriteSize(bytes: number, { maxBodyBytes }: Pick<Config, 'maxBodyBytes'>): void {
  if (bytes <= maxBodyBytes) return;
  const limit = `${maxBodyBytes} bytes (RUNLAKE_MAX_BODY_BYTES)`;
  throw runlakeError('BAD_REQUEST', { reason: `The examples together exceed ${limit}. Write fewer per request.` });
}

export function createExampleError(example: string, reason: string): Error {
  return runlakeError('INVALID_EXAMPLE', { example, reason });
}
