import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { runInTimeSlices } from '../../../infra/timeouts/time-slices.ts';
import { type FormPart, parseForm } from '../../ingest/body/multipart.ts';
import type { TableFormat } from './read-table.ts';
import type { UploadedColumns, UploadedFile } from './upload-dataset.ts';

/** Fields that can be repeated; each occurrence contains the name of a column. */
const columnFields = { input_keys: 'inputs', output_keys: 'outputs', metadata_keys: 'metadata' } as const;
const textFields = [
  'id',
  'name',
  'description',
  'data_type',
  'inputs_schema_definition',
  'outputs_schema_definition',
  'transformations',
] as const;
const unsupportedFields = ['input_key_mappings', 'output_key_mappings', 'metadata_key_mappings'] as const;

const maxParts = 2_000;
const maxFieldBytes = 512 * 1024;
/** Maximum number of columns of each kind. */
const maxColumns = 100;

export interface UploadForm {
  readonly file: UploadedFile;
  /** Name of the uploaded file, if the client sent one. */
  readonly fileName: string | undefined;
  readonly fields: Readonly<Partial<Record<(typeof textFields)[number], string>>>;
}

/**
 * Reads the form of an upload. The file is read as JSONL if its name or its type indicates this, and otherwise as CSV.
 * Other fields are ignored.
 *
 * @throws INVALID_MULTIPART, TOO_MANY_PARTS, UNSUPPORTED_MEDIA_TYPE, PARAMETER_NOT_SUPPORTED; INVALID_REQUEST if the
 *   file or the input keys are missing.
 */
export async function readUploadForm(body: Buffer, contentType: string): Promise<UploadForm> {
  const repeatable = new Set(Object.keys(columnFields));
  const parts = await runInTimeSlices(parseForm(body, contentType, maxParts, repeatable));
  const columns: Record<keyof UploadedColumns, string[]> = { inputs: [], outputs: [], metadata: [] };
  const fields: Partial<Record<(typeof textFields)[number], string>> = {};
  let file: FormPart | undefined;
  for (const part of parts) {
    if (part.name === 'file') {
      file = part;
      continue;
    }
    const text = () => readText(body, part);
    if (isKey(part.name, columnFields)) addColumn(columns[columnFields[part.name]], part.name, text());
    else if (isOneOf(part.name, textFields)) {
      const value = text();
      if (value !== '') fields[part.name] = value;
    } else if (isOneOf(part.name, unsupportedFields) && !/^(\[\]|\{\}|null)?$/.test(text())) {
      throw runlakeError('PARAMETER_NOT_SUPPORTED', { parameter: part.name });
    }
  }
  if (file === undefined) throw createFormError('file', 'is missing');
  if (columns.inputs.length === 0) throw createFormError('input_keys', 'is missing');
  const content = body.subarray(file.start, file.end);
  return { file: { format: detectFormat(file), content, columns }, fileName: file.filename, fields };
}

/**
 * Adds a column, unless it was already added. A repeated column would make an example larger than its row in the file.
 */
function addColumn(names: string[], field: string, name: string): void {
  if (names.includes(name)) return;
  if (names.length >= maxColumns) throw createFormError(field, `has more than ${maxColumns} values`);
  names.push(name);
}

const detectFormat = ({ filename = '', contentType }: FormPart): TableFormat =>
  /\.(jsonl|ndjson)$/i.test(filename) || /jsonl|ndjson|json-lines/.test(contentType) ? 'jsonl' : 'csv';

const isOneOf = <T extends string>(name: string, names: readonly T[]): name is T => names.includes(name as T);
const isKey = <T extends object>(name: string, table: T): name is Extract<keyof T, string> =>
  Object.hasOwn(table, name);

function readText(body: Buffer, part: FormPart): string {
  if (part.end - part.start > maxFieldBytes) throw createFormError(part.name, `has more than ${maxFieldBytes} bytes`);
  return body.toString('utf8', part.start, part.end);
}

export function createFormError(field: string, msg: string): Error {
  return runlakeError('INVALID_REQUEST', {}, { fields: [{ loc: ['body', field], msg, type: 'form' }] });
}
