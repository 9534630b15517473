import { isUtf8 } from 'node:buffer';
import { Readable } from 'node:stream';
import { CsvError, parse } from 'csv-parse';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { endSlice } from '../../../infra/timeouts/time-slices.ts';
import { scanObject, scanValue } from '../../ingest/json/scan.ts';
import { KeySet, skipSpace } from '../../ingest/json/scan-any.ts';

/** A row of an uploaded file. */
export interface TableRow {
  /** Number of the row in the file. In CSV records are counted, and the header is row 1; in JSONL lines are counted. */
  readonly number: number;
  /** Returns the value of a column as JSON; undefined if the row has no value for it. */
  readonly read: (column: string) => string | undefined;
}

export const tableFormats = ['csv', 'jsonl'] as const;
export type TableFormat = (typeof tableFormats)[number];

interface TableLimits {
  readonly maxRowBytes: number;
  readonly maxJsonDepth: number;
}

/**
 * Reads the rows of a file one after the other, and lets the event loop run in between.
 *
 * @param columns Columns to read; a CSV file must contain all of them.
 * @throws INVALID_FILE with the number of the row; INVALID_UTF8.
 */
export function readTable(
  format: TableFormat,
  file: Buffer,
  columns: readonly string[],
  limits: TableLimits,
): AsyncGenerator<TableRow> {
  if (!isUtf8(file)) throw runlakeError('BAD_REQUEST', { reason: 'The file is not UTF-8.' });
  return format === 'csv' ? readCsv(file, columns, limits) : readJsonLines(file, columns, limits);
}

const refuse = (row: number, reason: string) => runlakeError('INVALID_FILE', { row, reason });
/** The CSV parser parses a chunk without interruption. */
const bytesPerChunk = 16 * 1024;
const maxColumns = 10_000;

async function* readCsv(
  file: Buffer,
  columns: readonly string[],
  { maxRowBytes }: TableLimits,
): AsyncGenerator<TableRow> {
  const parser = parse({
    bom: true,
    relax_column_count: true,
    skip_empty_lines: true,
    max_record_size: maxRowBytes,
  });
  const chunks = Readable.from(generateChunks(file));
  chunks.on('error', (error) => parser.destroy(error)).pipe(parser);
  let number = 0;
  let header: string[] | undefined;
  let places = new Map<string, number>();
  try {
    for await (const record of parser as AsyncIterable<string[]>) {
      number++;
      const turn = endSlice();
      if (turn) await turn;
      if (header === undefined) {
        header = record;
        places = findColumns(header, columns);
        continue;
      }
      if (record.length !== header.length) {
        throw refuse(number, `it has ${record.length} cells, but the header has ${header.length}`);
      }
      yield {
        number,
        read: (column) => {
          const place = places.get(column);
          return place === undefined ? undefined : JSON.stringify(record[place]);
        },
      };
    }
  } catch (error) {
    // When the stream fails, it drops the records that it has buffered, so `number` may be too low.
    if (error instanceof CsvError) throw refuse(Number(error.records) + 1, describeCsvError(error));
    throw error;
  } finally {
    chunks.destroy();
    parser.destroy();
  }
  if (header === undefined) throw refuse(1, 'the file is empty');
}

/** A chunk may contain no complete record, so the event loop runs between chunks too. */
async function* generateChunks(file: Buffer): AsyncGenerator<Buffer> {
  const checkCells = createCellCheck(file);
  for (let at = 0; at < file.length; at += bytesPerChunk) {
    const end = Math.min(at + bytesPerChunk, file.length);
    checkCells(at, end);
    yield file.subarray(at, end);
    await endSlice();
  }
}

const [quote, comma, carriageReturn, lineFeed] = [0x22, 0x2c, 0x0d, 0x0a];

/**
 * Returns a function that checks the next bytes of a CSV file before they are parsed. The parser limits only the
 * characters of a row, and each cell needs memory, also if it is empty. As for the parser, the first line end determines
 * which bytes end a row.
 */
function createCellCheck(file: Buffer): (start: number, end: number) => void {
  let isQuoted = false;
  let isEmpty = true;
  let cells = 1;
  let row = 1;
  let rowEnd: number | undefined;
  let isAfterReturn = false;
  return (start, end) => {
    for (let at = start; at < end; at++) {
      const byte = file[at];
      const isLineEnd = !isQuoted && (byte === lineFeed || byte === carriageReturn);
      if (!isLineEnd) {
        isEmpty = false;
        if (byte === quote) isQuoted = !isQuoted;
        else if (byte === comma && !isQuoted && ++cells > maxColumns)
          throw refuse(row, `it has more than ${maxColumns} columns`);
        continue;
      }
      if (rowEnd === undefined) {
        isAfterReturn = byte === carriageReturn && file[at + 1] === lineFeed;
        rowEnd = isAfterReturn ? lineFeed : byte;
      }
      if (byte !== rowEnd || (isAfterReturn && file[at - 1] !== carriageReturn)) continue;
      if (!isEmpty) row++;
      isEmpty = true;
      cells = 1;
    }
  };
}

/** Checks the header of a CSV file. @throws INVALID_FILE if a column is missing, or its name is repeated. */
function findColumns(header: readonly string[], columns: readonly string[]): Map<string, number> {
  return new Map(
    columns.map((column) => {
      const place = header.indexOf(column);
      const name = JSON.stringify(column);
      if (place < 0)
        throw refuse(1, `there is no column ${name}; the columns are ${JSON.stringify(header).slice(0, 1_000)}`);
      if (header.lastIndexOf(column) > place) throw refuse(1, `there are several columns ${name}`);
      return [column, place];
    }),
  );
}

function describeCsvError({ code }: CsvError): string {
  switch (code) {
    case 'CSV_MAX_RECORD_SIZE':
      return 'it is too large';
    case 'CSV_QUOTE_NOT_CLOSED':
      return 'a quoted cell is not closed';
    default:
      return 'a quote is at a wrong place; a quote within a quoted cell is doubled';
  }
}

/** Short lines are read many at a time, because reading the clock takes longer than skipping an empty line. */
const bytesPerStep = 4 * 1024;

async function* readJsonLines(
  file: Buffer,
  columns: readonly string[],
  { maxRowBytes, maxJsonDepth }: TableLimits,
): AsyncGenerator<TableRow> {
  const keys = new KeySet([...new Set(columns)]);
  const hasByteOrderMark = file.length >= 3 && file[0] === 0xef && file[1] === 0xbb && file[2] === 0xbf;
  for (let number = 1, start = hasByteOrderMark ? 3 : 0, stepEnd = 0; start < file.length; number++) {
    if (start >= stepEnd) {
      stepEnd = start + bytesPerStep;
      await endSlice();
    }
    if (file[start] === lineFeed) {
      start++;
      continue;
    }
    const next = file.indexOf(lineFeed, start);
    const end = next < 0 ? file.length : next;
    const line = file.subarray(start, end);
    start = end + 1;
    if (skipSpace(line, 0, line.length) === line.length) continue;
    if (line.length > maxRowBytes) throw refuse(number, 'it is too large');
    requireObject(line, number, maxJsonDepth);
    const members = scanObject(line, 0, line.length, keys, { part: 'the row', maxDepth: maxJsonDepth });
    yield {
      number,
      read: (column) => {
        const value = members[keys.keys.indexOf(column)];
        return value && line.toString('utf8', value.start, value.end);
      },
    };
  }
}

function requireObject(line: Buffer, number: number, maxDepth: number): void {
  try {
    if (scanValue(line, 0, line.length, { part: 'the row', maxDepth }).kind === 'object') return;
  } catch (error) {
    if (isRunlakeError(error)) throw refuse(number, error.message.replace(/\.$/, ''));
    throw error;
  }
  throw refuse(number, 'it is not a JSON object');
}
