import pg from 'pg';

/** Runs one statement on the engine at `address`, ignoring the database in it. @returns the response text. */
export async function askClickhouseEngine(address: string, sql: string): Promise<string> {
  const url = new URL(address);
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
