import type { Sql } from '../../infra/postgres/database.ts';

/** Reads the time, in milliseconds since 1970. */
export type ReadClock = (sql: Sql) => Promise<number>;

/**
 * The clock of Postgres: processes agree on what is due, however their own clocks are set. Rounded up, so that a row that was due when
 * the clock was read counts as due.
 */
export const readDatabaseClock: ReadClock = async (sql) => {
  const [row] = await sql.query<{ now_ms: number }>(
    'SELECT ceil(extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now_ms',
    [],
    { name: 'agents_database_clock' },
  );
  return (row as { now_ms: number }).now_ms;
};

export interface DueClock {
  /** Something became due, or may have, somewhere: look. */
  wake(): void;
  /** Resolves once no look is under way. */
  stop(): Promise<void>;
}

/** A notice that wakes it may be lost, and the clock of the database may be set. */
const longestPauseMs = 10_000;

/**
 * Looks now, when it is woken, and when the next is due, but at least every ten seconds. One look at a time: what wakes it meanwhile
 * makes it look once more.
 *
 * @param look Does what is due, and says in how many milliseconds the next is; undefined where none is.
 */
export function startDueClock(look: () => Promise<number | undefined>, onFailure: (error: unknown) => void): DueClock {
  let stopping = false;
  let isStale = false;
  let looking: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;

  async function lookUntilFresh(): Promise<void> {
    let pauseMs = longestPauseMs;
    do {
      isStale = false;
      clearTimeout(timer);
      try {
        pauseMs = Math.min((await look()) ?? longestPauseMs, longestPauseMs);
      } catch (error) {
        onFailure(error);
      }
    } while (isStale && !stopping);
    looking = undefined;
    if (!stopping) timer = setTimeout(wake, pauseMs);
  }

  function wake(): void {
    if (stopping) return;
    isStale = true;
    looking ??= lookUntilFresh();
  }

  wake();
  return {
    wake,
    async stop() {
      stopping = true;
      await looking;
      clearTimeout(timer);
    },
  };
}
