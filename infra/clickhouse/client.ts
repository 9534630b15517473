import { rm } from 'node:fs/promises';
import { runWithoutTenant } from '../fairness/tenant-context.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { ClickHouse, Query } from './clickhouse.ts';
import { openConnection, readResponse, saveResponse } from './connection.ts';
import { buildQuery, maxCheckMs, parseRows, rowsFormat, StatementSender } from './statement-sender.ts';

export type { ClickHouse } from './clickhouse.ts';

export interface ClickHouseOptions {
  /**
   * Address as `http(s)://user:password@host:port/database`. Without a path, it is the default database of the user. Several
   * addresses, separated by commas, are the addresses of all servers of a cluster.
   */
  readonly url: string;
  /** Name of the cluster in `system.clusters`, if the tables are in a cluster. */
  readonly cluster?: string | undefined;
  /** Trusted CA certificates in PEM format. */
  readonly authorities?: readonly string[] | undefined;
  readonly logger: Logger;
  /** Timeout of statements without a timeout of their own. */
  readonly timeoutMs: number;
  /**
   * Maximum number of concurrent statements on each server for Runlake's internal work. Further statements wait.
   * Default: 16.
   */
  readonly maxConnections?: number;
  /**
   * Maximum number of concurrent queries of organisations (`query-slots.ts`). Default: derived from ClickHouse's
   * `max_threads`.
   */
  readonly querySlots?: number;
}

/**
 * Opens a ClickHouse client. The client connects when the first statement is sent. It keeps connections alive and
 * reuses them.
 */
export function openClickHouse(options: ClickHouseOptions): ClickHouse {
  const { url, cluster, authorities, logger, timeoutMs, maxConnections = 16, querySlots } = options;
  const urls = url.split(',').map((each) => each.trim());
  const clients = urls.length > 1 ? urls.map((each) => openClickHouse({ ...options, url: each })) : undefined;
  const servers = urls.map((each, index) => {
    const address = new URL(each);
    return {
      own: openConnection({ address, authorities, maxConnections }),
      shared: openConnection({ address, authorities }),
      check: () => runWithoutTenant(() => clickhouse.servers[index]!.ping(Math.min(timeoutMs, maxCheckMs))),
    };
  });
  const sender = new StatementSender({ servers, cluster, querySlots, logger, timeoutMs });

  const clickhouse: ClickHouse = {
    cluster,
    get servers() {
      return clients ?? [clickhouse];
    },
    layout: () => sender.layout(),
    async query<Row>(query: Query) {
      const answers = await sender.sendToShards(buildQuery({ timeoutMs, ...query }, rowsFormat), readResponse);
      return answers.length === 1 ? parseRows<Row>(answers[0]!) : answers.flatMap(parseRows<Row>);
    },
    async queryText({ format, ...query }) {
      const answers = await sender.sendToShards(buildQuery({ timeoutMs, ...query }, format), readResponse);
      return answers.length === 1 ? answers[0]! : Buffer.concat(answers);
    },
    async queryToFile({ format, path, ...query }) {
      try {
        const request = buildQuery({ timeoutMs, ...query }, format, 'file');
        return await sender.send(request, (answer, signal) => saveResponse(answer, path, signal));
      } catch (error) {
        await rm(path, { force: true });
        throw error;
      }
    },
    async insertBody({ table, columns, format, body, ...insert }) {
      const request = {
        timeoutMs,
        ...insert,
        sql: `INSERT INTO ${table} (${columns.join(', ')}) FORMAT ${format}`,
        body: { bytes: body, contentType: 'application/octet-stream' },
        profile: 'insert',
        statement: { kind: 'insert', table },
      } as const;
      await sender.send(request, readResponse);
    },
    async command({ profile = 'write', ...command }) {
      await sender.send({ timeoutMs, ...command, profile, statement: { kind: 'query' } }, readResponse);
    },
    async ping(allowedMs = timeoutMs) {
      await clickhouse.query({ name: 'ping', sql: 'SELECT 1', timeoutMs: allowedMs });
    },
    async version() {
      const [row] = await clickhouse.query<{ version: string }>({
        name: 'version',
        sql: 'SELECT version() AS version',
      });
      return row!.version;
    },
    async close() {
      for (const { own, shared } of servers) {
        own.close();
        shared.close();
      }
      if (clients) await Promise.all(clients.map((client) => client.close()));
    },
  };
  return clickhouse;
}
