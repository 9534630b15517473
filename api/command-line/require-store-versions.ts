import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Stores } from './open-stores.ts';

const needed = {
  ClickHouse: { release: '25.8', variable: 'RUNLAKE_CLICKHOUSE_URL' },
  Postgres: { release: '15', variable: 'RUNLAKE_DATABASE_URL' },
} as const;

/** @throws STORE_TOO_OLD, and the errors of the stores if they are unreachable. */
export async function requireStoreVersions({ clickhouse, database }: Omit<Stores, 'close'>): Promise<void> {
  requireVersion('ClickHouse', await clickhouse.version());
  requireVersion('Postgres', await database.version());
}

/** Compares a release such as `25.8.3.1` or `15.4 (Debian)` with the minimum release. @throws STORE_TOO_OLD */
export function requireVersion(store: keyof typeof needed, found: string): void {
  const { release, variable } = needed[store];
  const [wanted, present] = [release, found].map((text) => /^(\d+)(?:\.(\d+))?/.exec(text)?.slice(1).map(Number) ?? []);
  const [major = 0, minor = 0] = present ?? [];
  const [minMajor = 0, minMinor = 0] = (wanted ?? []).map((part) => (Number.isNaN(part) ? 0 : part));
  if (major > minMajor || (major === minMajor && (minor || 0) >= minMinor)) return;
  throw runlakeError('STORE_TOO_OLD', { store, found, needed: release, variable });
}
