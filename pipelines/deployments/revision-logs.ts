/**
 * Logs of revisions: the output of builds and replicas.
 *
 * Invariant: a stored line contains no value of a secret, and paths in the build are relative to it. Chunks of a revision
 * are committed in the order of their sequence numbers, so that readers who continue after a number miss none. A revision
 * has at most {@link maxLogChunks} chunks of log of each stage; the oldest are deleted first.
 */
import type { Sql } from '../../infra/postgres/database.ts';
import { retryWhileUnavailable } from '../../infra/postgres/database-error.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { pause } from '../../infra/timeouts/backoff.ts';
import { createMask, removeControls } from './mask-secrets.ts';
import { isFinal, type RevisionStatus } from './states.ts';

export type LogStage = 'build' | 'deploy' | 'run';

export interface LogChunk {
  /** Increases within the revision. */
  readonly sequence: number;
  readonly at: string;
  readonly stage: LogStage;
  /** One or more lines. */
  readonly text: string;
}

const flushIntervalMs = 250;
const maxChunkBytes = 16 * 1024;
const maxLineCharacters = 4_000;
const maxLogChunks = 500;
/** Lines that are buffered while Postgres is slow; further lines are dropped and counted. */
const maxBufferedLines = 5_000;
/** Lines that are kept to explain a failure. */
const maxTailLines = 50;

export interface RevisionLog {
  /** Adds output. Text with several lines is split. Never throws. */
  write(text: string): void;
  /** Masks the secrets in a text that is stored elsewhere, and makes paths in the build relative. */
  mask(text: string): string;
  /** Returns the last lines, which explain a failure. */
  tail(lines: number): string;
  /** Stores the buffered lines. Never rejects. */
  flush(): Promise<void>;
}

/** The lock of the revision is taken before the sequence number. Stores nothing if the revision was deleted. */
const insertSql = `INSERT INTO revision_logs (revision_id, stage, text) SELECT locked.id, $2, $3
  FROM (SELECT id FROM deployment_revisions WHERE id = $1 FOR NO KEY UPDATE) AS locked`;

/** Opens the log of a revision for writing. `values` are those of its secrets. */
export function openRevisionLog(
  { database, logger }: { readonly database: Sql; readonly logger: Logger },
  {
    revisionId,
    stage,
    values,
  }: { readonly revisionId: string; readonly stage: LogStage; readonly values: Iterable<string> },
): RevisionLog {
  const maskSecrets = createMask(values);
  const mask = (text: string) => shortenPaths(maskSecrets(text), revisionId);
  const clean = (line: string) => removeControls(mask(line).slice(0, maxLineCharacters));
  let lines: string[] = [];
  /** The last lines as they arrived, also those that were dropped. */
  const last: string[] = [];
  let dropped = 0;
  let timer: NodeJS.Timeout | undefined;
  let writing: Promise<void> = Promise.resolve();

  async function store(): Promise<void> {
    const pending = lines;
    const missing = dropped;
    lines = [];
    dropped = 0;
    if (missing > 0) pending.push(`(${missing} lines were dropped)`);
    let unstoredLines = pending.length;
    try {
      for (const text of toChunks(pending)) {
        // If the answer is lost, the chunk is stored twice, because the alternative is to lose it.
        await retryWhileUnavailable(() => database.execute(insertSql, [revisionId, stage, text]));
        unstoredLines -= text.split('\n').length;
      }
    } finally {
      // The line with the number is the last one.
      if (unstoredLines > 0) dropped += missing === 0 ? unstoredLines : unstoredLines - 1 + missing;
    }
    await database.execute(
      `DELETE FROM revision_logs WHERE revision_id = $1 AND stage = $3 AND sequence <= (SELECT sequence FROM revision_logs
         WHERE revision_id = $1 AND stage = $3 ORDER BY sequence DESC OFFSET $2 LIMIT 1)`,
      [revisionId, maxLogChunks, stage],
    );
  }

  function flush(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    writing = writing
      .then(() => (lines.length > 0 ? store() : undefined))
      .catch((err: unknown) => logger.warn({ err, revisionId }, 'log of a revision not stored'));
    return writing;
  }

  return {
    write(text) {
      for (const line of text.split('\n')) {
        if (line === '') continue;
        last.push(line);
        if (last.length > maxTailLines) last.shift();
        // Before the line is masked, which takes time: untrusted code can write millions of lines.
        if (lines.length >= maxBufferedLines) {
          dropped += 1;
          continue;
        }
        const cleaned = clean(line);
        if (cleaned !== '') lines.push(cleaned);
      }
      timer ??= setTimeout(() => void flush(), flushIntervalMs);
    },
    mask,
    tail: (count) =>
      last
        .map(clean)
        .filter((line) => line !== '')
        .slice(-count)
        .join('\n'),
    flush,
  };
}

/** Removes the paths of the build folder of a revision, `/…/<id>/`, also as URLs, in linear time. */
function shortenPaths(text: string, revisionId: string): string {
  const marker = `/${revisionId}/`;
  const parts = text.split(marker);
  const end = parts.pop() ?? '';
  const shortened = parts.map((part) => {
    let start = part.length;
    while (start > 0 && !/[\s'"():]/.test(part.charAt(start - 1))) start -= 1;
    const slash = part.indexOf('/', start);
    if (slash === -1) return part + marker;
    return part.slice(0, slash).replace(/file:$/, '');
  });
  return shortened.join('') + end;
}

function toChunks(lines: readonly string[]): string[] {
  const chunks: string[] = [];
  let chunk: string[] = [];
  let bytes = 0;
  for (const line of lines) {
    const size = Buffer.byteLength(line) + 1;
    if (chunk.length > 0 && bytes + size > maxChunkBytes) {
      chunks.push(chunk.join('\n'));
      chunk = [];
      bytes = 0;
    }
    chunk.push(line);
    bytes += size;
  }
  if (chunk.length > 0) chunks.push(chunk.join('\n'));
  return chunks;
}

export interface LogPage {
  /** Sequence number of the last chunk before the page; 0: none. */
  readonly after: number;
  readonly limit: number;
  /** Undefined: all stages. */
  readonly stages?: readonly LogStage[] | undefined;
  /** With `desc`, the page begins with the newest chunk that is older than `after`. Default: `asc`. */
  readonly order?: 'asc' | 'desc' | undefined;
  /** Only chunks from this time on. */
  readonly from?: string | null | undefined;
  /** Only chunks until this time. */
  readonly to?: string | null | undefined;
  /** Only chunks with this text, in upper or lower case. */
  readonly text?: string | null | undefined;
}

/** Reads a page of log chunks. The caller must have checked that the revision is its own. */
export function readLog(database: Sql, revisionId: string, page: LogPage): Promise<LogChunk[]> {
  const { after, limit, stages, order = 'asc', from, to, text } = page;
  return database.query<LogChunk>(
    `SELECT sequence, at, stage, text FROM revision_logs
     WHERE revision_id = $1 AND ${order === 'asc' ? 'sequence > $2' : '($2 = 0 OR sequence < $2)'}
       AND ($4::text[] IS NULL OR stage = ANY ($4)) AND ($5::timestamptz IS NULL OR at >= $5)
       AND ($6::timestamptz IS NULL OR at <= $6) AND ($7::text IS NULL OR strpos(lower(text), lower($7)) > 0)
     ORDER BY sequence ${order} LIMIT $3`,
    [revisionId, after, limit, stages ?? null, from ?? null, to ?? null, text ?? null],
  );
}

/** Reads the last lines of what the replicas of a revision have written. */
export async function readLastLines(database: Sql, revisionId: string, lines: number): Promise<string> {
  const newest = await database.query<{ text: string }>(
    `SELECT text FROM revision_logs WHERE revision_id = $1 AND stage = 'run' ORDER BY sequence DESC LIMIT $2`,
    [revisionId, lines],
  );
  const texts = newest.reverse().flatMap(({ text }) => text.split('\n'));
  return texts.slice(-lines).join('\n');
}

export interface LogUpdate {
  readonly chunks: readonly LogChunk[];
  readonly status: RevisionStatus;
}

const followIntervalMs = 500;
const followPage = 100;

/**
 * Follows the log of a revision: first what is stored after `after`, then new chunks. Ends when the revision has its
 * final status and everything is read, or when it is deleted or `signal` is aborted.
 */
export async function* followLog(
  database: Sql,
  revisionId: string,
  { after, stages }: Pick<LogPage, 'after' | 'stages'>,
  signal: AbortSignal,
): AsyncGenerator<LogUpdate> {
  let position = after;
  let known: RevisionStatus | undefined;
  while (!signal.aborted) {
    // The status is read first, so that no line that was stored before a final status is missed.
    const [revision] = await database.query<{ status: RevisionStatus }>(
      'SELECT status FROM deployment_revisions WHERE id = $1',
      [revisionId],
    );
    if (revision === undefined) return;
    const chunks = await readLog(database, revisionId, { after: position, limit: followPage, stages });
    position = chunks.at(-1)?.sequence ?? position;
    if (chunks.length > 0 || revision.status !== known) {
      known = revision.status;
      yield { chunks, status: revision.status };
    }
    if (chunks.length === followPage) continue;
    if (isFinal(revision.status)) return;
    await pause(followIntervalMs, signal);
  }
}
