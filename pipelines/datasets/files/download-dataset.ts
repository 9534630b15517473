import { Readable } from 'node:stream';
import { formatCsv } from '../../../infra/csv/format-csv.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { readForTenant } from '../../../infra/fairness/tenant-context.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import { scanJson } from '../../ingest/json/scan.ts';
import { toOpenAiMessages, toText } from '../../runs/openai-messages.ts';
import type { ExampleRow } from '../example.ts';
import { createChunkReserver, openVersion, type ReadVersion, type VersionReference } from '../stream-version.ts';

export const downloadFormats = ['csv', 'jsonl', 'openai', 'openai_ft'] as const;
export type DownloadFormat = (typeof downloadFormats)[number];

/**
 * Formats a version of a dataset as a file. The file is streamed while the version is read.
 *
 * @throws NOT_FOUND; BAD_REQUEST if a CSV file would have too many columns; OVERLOADED if there is no memory for it.
 */
export async function downloadDataset(
  database: Sql,
  workspaceId: string,
  version: VersionReference,
  format: DownloadFormat,
): Promise<Readable> {
  const readVersion = await openVersion(database, workspaceId, version, {}, createChunkReserver());
  if (format === 'csv') return formatTable(readVersion);
  return Readable.from(readForTenant(generateLines(readVersion, lineFormats[format])));
}

async function* generateLines(readVersion: ReadVersion, format: (row: ExampleRow) => string): AsyncGenerator<string> {
  for await (const row of readVersion()) yield `${format(row)}\n`;
}

const lineFormats: Readonly<Record<Exclude<DownloadFormat, 'csv'>, (row: ExampleRow) => string>> = {
  jsonl: ({ id, inputs, outputs, metadata }) =>
    toOneLine(`{"id":"${id}","inputs":${inputs},"outputs":${outputs ?? 'null'},"metadata":${metadata}}`),
  openai: ({ inputs, outputs }) => {
    const replies = outputs === null ? [] : toOpenAiMessages(JSON.parse(outputs), 'assistant');
    return JSON.stringify({
      input: toOpenAiMessages(JSON.parse(inputs), 'user'),
      ideal: replies.length === 0 ? null : toText(replies.at(-1)!.content),
    });
  },
  openai_ft: ({ inputs, outputs }) =>
    JSON.stringify({
      messages: [
        ...toOpenAiMessages(JSON.parse(inputs), 'user'),
        ...(outputs === null ? [] : toOpenAiMessages(JSON.parse(outputs), 'assistant')),
      ],
    }),
};

/**
 * Converts stored JSON to one line. Its line breaks can only be white space between values, because line breaks in
 * strings are escaped.
 */
const toOneLine = (json: string) => json.replace(/[\r\n]/g, ' ');

const maxColumns = 1_000;
const documents = ['inputs', 'outputs'] as const;

/** Formats a version as CSV. Reads the version twice: first to collect the column names, then for the cells. */
async function formatTable(readVersion: ReadVersion): Promise<Readable> {
  const columns = { inputs: new Set<string>(), outputs: new Set<string>() };
  for await (const row of readVersion()) {
    for (const document of documents) for (const key of readMembers(row[document]).keys()) columns[document].add(key);
    if (columns.inputs.size + columns.outputs.size > maxColumns) {
      throw runlakeError('BAD_REQUEST', { reason: `CSV would have more than ${maxColumns} columns; use JSONL.` });
    }
  }
  const header = documents.flatMap((document) => [...columns[document]].map((key) => `${document}.${key}`));
  return formatCsv(['id', ...header, 'metadata'], readForTenant(generateRows(readVersion, columns)));
}

async function* generateRows(
  readVersion: ReadVersion,
  columns: Readonly<Record<(typeof documents)[number], ReadonlySet<string>>>,
): AsyncGenerator<string[]> {
  for await (const row of readVersion()) {
    const cells = documents.flatMap((document) => {
      const members = readMembers(row[document]);
      return [...columns[document]].map((key) => members.get(key) ?? '');
    });
    yield [row.id, ...cells, row.metadata];
  }
}

/**
 * Returns the members of a JSON object: strings are decoded, other values are returned as the JSON text that was sent.
 */
export function readMembers(json: string | null): Map<string, string> {
  const members = new Map<string, string>();
  if (json === null) return members;
  const bytes = Buffer.from(json);
  scanJson(bytes, 0, bytes.length, { part: 'example', maxDepth: Infinity }, (kind, start, end, key) => {
    const text = bytes.toString('utf8', start, end);
    members.set(key ?? '', kind === 'string' ? (JSON.parse(text) as string) : text);
  });
  return members;
}
