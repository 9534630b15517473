import pg from 'pg';

/**
 * Runs one statement on each engine of `addresses` (separated by commas), ignoring the database in them.
 *
 * @returns the response text of the first engine.
 */
export async function askClickhouseEngine(addresses: string, sql: string): Promise<string> {
  const [answer = ''] = await Promise.all(addresses.split(',').map((address) => queryAddress(new URL(address), sql)));
  return answer;
}

/** Replaces the database in each of `addresses`. */
export function withDatabase(addresses: string, name: string): string {
  const named = addresses.split(',').map((address) => {
    const url = new URL(address);
    url.pathname = `/${name}`;
    return url.href;
  });
  return named.join(',');
}

async function queryAddress(url: URL, sql: string): Promise<string> {
  const answer = await fetch(url.origin, {
    method: 'POST',
    body: sql,
    headers: { 'X-ClickHouse-User': url.username, 'X-ClickHouse-Key': url.password, Connection: 'close' },
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(text);
  return text;
}

/** Runs statements sequentially, each as a separate request, on one connection that is closed afterwards. */
export async function askPostgresEngine(address: string, ...statements: readonly string[]): Promise<void> {
  const client = new pg.Client(address);
  await client.connect();
  try {
    for (const sql of statements) await client.query(sql);
  } finally {
    await client.end();
  }
}
