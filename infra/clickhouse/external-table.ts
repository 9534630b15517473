import { randomUUID } from 'node:crypto';
import type { ClickHouseSettings } from '@clickhouse/client';
import type { ExternalTable } from './clickhouse.ts';

interface Encoded {
  readonly body: Buffer;
  readonly contentType: string;
  readonly settings: ClickHouseSettings;
}

/**
 * Encodes a table that is sent with a query, as a file of a multipart form.
 * Source: ClickHouse documentation, "External data for query processing".
 */
export function externalTable({ name, structure, rows }: ExternalTable): Encoded {
  const boundary = `runlake-${randomUUID()}`;
  const head = `--${boundary}\r\nContent-Disposition: form-data; name="${name}"; filename="${name}"\r\n\r\n`;
  const values = rows.map((row) => row.join('\t')).join('\n');
  return {
    body: Buffer.from(`${head}${values}\r\n--${boundary}--\r\n`),
    contentType: `multipart/form-data; boundary=${boundary}`,
    // These are not settings, but ClickHouse reads them from the URL parameters, like settings.
    settings: { [`${name}_structure`]: structure, [`${name}_format`]: 'TabSeparated' } as ClickHouseSettings,
  };
}
