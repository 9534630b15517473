/**
 * Counts reads of commits.
 *
 * Invariant: a request that reads a commit waits for no write and for no lock.
 *
 *   1. A request counts in memory. The first count starts the timer.
 *   2. A flush takes all counts and adds them to their repos and commits in one transaction. It locks the repos in the
 *      order of their ids, so that flushes of two processes do not block each other, and before their commits, as
 *      deletions do.
 *   3. The counts of a flush that fails are added again. A crash loses the counts of the last seconds.
 */
import { runWithoutTenant } from '../../infra/fairness/tenant-context.ts';
import type { Database, Sql } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';

export type ReadKind = 'download' | 'view';

interface Counts {
  readonly download: number;
  readonly view: number;
}

const flushIntervalMs = 2_000;
/** Maximum number of commits with counts in memory; reads of further commits are not counted. */
const maxCommits = 10_000;

export class ReadCounts {
  readonly #database: Database;
  readonly #logger: Logger;
  #counts = new Map<string, Counts>();
  #timer: NodeJS.Timeout | undefined;
  #flush: Promise<void> | undefined;

  constructor(database: Database, logger: Logger) {
    this.#database = database;
    this.#logger = logger;
  }

  count(commitId: string, kind: ReadKind): void {
    this.#add(commitId, { download: 0, view: 0, [kind]: 1 });
    this.#timer ??= setTimeout(() => void this.flush(), flushIntervalMs).unref();
  }

  /** Stores all counts. Resolves when everything that was counted before has been stored, or storing it has failed. */
  async flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    await this.#flush;
    if (this.#counts.size === 0) return;
    const counts = this.#counts;
    this.#counts = new Map();
    this.#flush = runWithoutTenant(() => this.#database.transaction((tx) => storeCounts(tx, counts))).catch(
      (err: unknown) => {
        this.#logger.warn({ err, commits: counts.size }, 'cannot store the reads of prompts');
        for (const [commitId, added] of counts) this.#add(commitId, added);
        this.#timer ??= setTimeout(() => void this.flush(), flushIntervalMs).unref();
      },
    );
    await this.#flush;
  }

  #add(commitId: string, added: Counts): void {
    const found = this.#counts.get(commitId);
    if (found === undefined && this.#counts.size >= maxCommits) return;
    const { download, view } = found ?? { download: 0, view: 0 };
    this.#counts.set(commitId, { download: download + added.download, view: view + added.view });
  }
}

async function storeCounts(tx: Sql, counts: ReadonlyMap<string, Counts>): Promise<void> {
  // A flush that waits for one repo must not keep the others locked for long.
  await tx.execute(`SET LOCAL lock_timeout = '500ms'`);
  const values = [...counts.values()];
  const parameters = [[...counts.keys()], values.map(({ download }) => download), values.map(({ view }) => view)];
  const counted = 'unnest($1::uuid[], $2::int[], $3::int[]) AS counted (commit_id, downloads, views)';
  await tx.query(
    `SELECT FROM repos WHERE id IN (SELECT repo_id FROM repo_commits WHERE id = ANY ($1::uuid[]))
     ORDER BY id FOR NO KEY UPDATE`,
    [parameters[0]],
  );
  await tx.execute(
    `UPDATE repos SET download_count = download_count + added.downloads, view_count = view_count + added.views
     FROM (SELECT repo_id, sum(downloads) AS downloads, sum(views) AS views
       FROM ${counted} JOIN repo_commits ON id = commit_id GROUP BY repo_id) AS added
     WHERE repos.id = added.repo_id`,
    parameters,
  );
  await tx.execute(
    `UPDATE repo_commits SET download_count = download_count + downloads, view_count = view_count + views
     FROM ${counted} WHERE id = commit_id`,
    parameters,
  );
}
