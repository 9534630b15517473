// # 6. On your own servers
//
// `runlake all` starts ClickHouse and Postgres itself and keeps the event log inside its process. Give it addresses,
// and it uses your servers instead, one or all of them:
//
//   RUNLAKE_CLICKHOUSE_URL=https://user:password@clickhouse:8443/runlake      ClickHouse 25.8 or newer
//   RUNLAKE_DATABASE_URL=postgres://user:password@postgres/runlake?sslmode=verify-full    Postgres 15 or newer
//   RUNLAKE_REDIS_URL=rediss://user:password@redis:6379                       optional: job queues; Redis 7 or newer
// RUNLAKE_KAFKA_BROKERS=kafka-1:9093,kafka-2:9093                           with RUNLAKE_KAFKA_TLS,
// RUNLAKE_KAFKA_SASL_MECHANISM,
//   RUNLAKE_SCHEMA_REGISTRY_URL=https://user:password@registry                RUNLAKE_KAFKA_USER and RUNLAKE_KAFKA_PASSWORD
//   RUNLAKE_TLS_CA_FILE=/etc/ssl/company.pem                                  authorities of your own, for all of them
//   RUNLAKE_SECRET_KEY=...                                                    needed once both stores are yours
//
// With Kafka the work divides into processes, as many of each as you like, with the same variables:
//
//   runlake api       answers HTTP and publishes; 202 once Kafka has the batch on all in-sync replicas
//   runlake ingest    stores what Kafka has, and counts usage; tells metrics and readiness on RUNLAKE_METRICS_PORT (9464)
//
// They may start at the same moment, also before the servers: a role listens at once, waits, and names on /ready the
// servers that are down. One role brings the stores to the schema of the release, the others wait for it. Topics and
// schemas are made where they are missing. Nothing needs a disk: the data folder is for embedded engines only.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { builtCommand } from '../../test/built-program.ts';
import { askPostgres } from '../../test/infra/embedded/processes.ts';
import { type RunlakeProcess, startRunlake } from '../../test/runlake-process.ts';

const command = (words: readonly string[], environment: Record<string, string> = {}) =>
  builtCommand(words, { RUNLAKE_DATA_DIR: runlake.dataDir, ...environment });

let runlake: RunlakeProcess;
beforeAll(async () => {
  runlake = await startRunlake();
});
afterAll(() => runlake?.remove());

describe('roles', () => {
  it('name the addresses that they cannot do without', async () => {
    const { code, errors } = await command(['ingest'], { RUNLAKE_DATABASE_URL: runlake.stores().databaseUrl });
    expect(code).toBe(1);
    expect(errors).toContain('requires RUNLAKE_KAFKA_BROKERS, RUNLAKE_SCHEMA_REGISTRY_URL, RUNLAKE_CLICKHOUSE_URL');
  });
});

describe('runlake doctor', () => {
  it('asks every server and names the first thing that is wrong, with what to do', async () => {
    const { code, output } = await command(['doctor'], { RUNLAKE_REDIS_URL: 'redis://127.0.0.1:9' });
    expect(code).toBe(1);
    expect(output).toMatch(/FAULT {2}Redis: nothing listens at 127\.0\.0\.1:9\n {7}→ Start the server, or correct/);
  });
});

// Events that can never be stored do not hold up the others: they are put aside with their original bytes and headers, in
// Kafka's topic `run-events-dead-letters`, or in a table of Postgres without Kafka. `/metrics` counts them.
describe('dead letters', () => {
  const id = 'run-events/1';
  beforeAll(() =>
    askPostgres(
      runlake.stores().databaseUrl,
      `INSERT INTO dead_letters (topic, partition, log_offset, key, value, headers, reason, step)
       VALUES ('run-events', 0, 7, 'a key', 'not a record', '{"from": "the guide"}', 'not in the wire format', 'inspect')`,
    ),
  );

  it('are listed, newest first, by topic, step and time; --json is for programs', async () => {
    const { output } = await command(['dlq', 'list', '--topic', 'run-events', '--limit', '5']);
    const [heads = '', row = ''] = output.split('\n');
    expect(heads.split(/ {2,}/)).toEqual(['ID', 'TIME', 'STEP', 'SIZE', 'REPLAYED', 'KEY', 'REASON']);
    expect(row).toMatch(/^run-events\/1 +20\S+Z +inspect +12 B +no +a key +not in the wire format$/);
    const { output: lines } = await command(['dlq', 'list', '--json']);
    expect(JSON.parse(lines)).toMatchObject({ id, step: 'inspect', size_bytes: 12, replayed_at: null });
  });

  it('are shown: their record as JSON, or their bytes where no schema reads them', async () => {
    const { output } = await command(['dlq', 'show', id]);
    expect(output).toContain('Header from the guide');
    expect(output).toMatch(/00000000 {2}6e 6f 74 20 .* not a record/);
    expect((await command(['dlq', 'show', 'run-events/99'])).errors).toContain(
      'There is no dead-letter record run-events/99',
    );
  });

  // A replay publishes the original bytes at the end of the topic, so its values win over those of patches that were
  // stored before. It is refused where the run has changed since, where the letter was replayed before, and where it
  // would die again.
  it('are replayed, with --force where there is a reason against it', async () => {
    const refused = await command(['dlq', 'replay', id]);
    expect(refused.code).toBe(1);
    expect(refused.output).toContain('so their values overwrite those of earlier patches');
    expect(refused.output).toContain(`${id}: not replayed: its bytes cannot be read by any schema`);
    expect((await command(['dlq', 'replay', id, '--force'])).output).toContain(`${id}: replayed.`);
    // It died again, of the same fault: that is a letter of its own.
    const { output } = await command(['dlq', 'list']);
    expect(output).toMatch(/^run-events\/2 .* no .*\nrun-events\/1 .* yes /m);
    expect((await command(['dlq', 'replay', id])).output).toContain('not replayed');
  });

  it('are chosen by ids or by a filter, never all by mistake', async () => {
    const { code, errors } = await command(['dlq', 'replay']);
    expect(code).toBe(1);
    expect(errors).toContain('by their ids or by --topic, --step, --since, --until or --all');
  });
});
