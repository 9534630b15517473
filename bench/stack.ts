import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ClickHouse, openClickHouse } from '../infra/clickhouse/client.ts';
import { createLogger } from '../infra/telemetry/logger.ts';
import { bringUp } from '../test/stack/bring-up.ts';
import type { PartValues } from '../test/stack/part.ts';
import { loadStackSettings } from '../test/stack/stack-settings.ts';
import { takeDown } from '../test/stack/take-down.ts';
import { atEnd, started } from './started.ts';

/** Separate servers for one bench: Kafka, a schema registry, ClickHouse, Postgres, and others on request. */
export interface BenchStack {
  readonly brokers: string;
  readonly registryUrl: string;
  readonly apiKey: string;
  /** Environment of the roles. */
  readonly environment: Readonly<Record<string, string>>;
  readonly clickhouse: ClickHouse;
  /** Addresses, names and passwords of the S3 store, if requested. */
  readonly s3: PartValues;
}

export const benchPartitions = 4;

/** Runs `work` on a separate stack, which is stopped when the bench ends; a stack that is already up is not affected. */
export async function withStack<T>(work: (stack: BenchStack) => Promise<T>, more: readonly 's3'[] = []): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'runlake-bench-'));
  const parts = ['kafka', 'registry', 'clickhouse', 'postgres', ...more] as const;
  const ports = { kafka: 0, registry: 0, redis: 0, s3: 0, clickhouse: 0, postgres: 0 };
  atEnd(async () => {
    await takeDown(folder);
    rmSync(folder, { recursive: true, force: true });
  });
  const starting = bringUp({ ...loadStackSettings(), folder, parts, ports, isCi: true }, () => {});
  // A stack that has just begun to start cannot be stopped.
  const state = await started(starting, () => undefined);
  const exports: Record<string, string> = {};
  for (const part of Object.values(state.parts)) Object.assign(exports, part.status === 'up' ? part.exports : {});
  const apiKey = `bench-${randomBytes(16).toString('hex')}`;
  const clickhouse = openClickHouse({
    url: exports.RUNLAKE_CLICKHOUSE_URL ?? '',
    logger: createLogger('warn', 'bench'),
    timeoutMs: 60_000,
  });
  atEnd(() => clickhouse.close());
  return work({
    brokers: exports.RUNLAKE_KAFKA_BROKERS ?? '',
    registryUrl: exports.RUNLAKE_SCHEMA_REGISTRY_URL ?? '',
    apiKey,
    environment: {
      ...exports,
      RUNLAKE_KAFKA_PARTITIONS: String(benchPartitions),
      RUNLAKE_SECRET_KEY: randomBytes(24).toString('hex'),
      RUNLAKE_BOOTSTRAP_API_KEY: apiKey,
    },
    clickhouse,
    s3: state.parts.s3?.status === 'up' ? state.parts.s3.values : {},
  });
}
