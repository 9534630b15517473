import { findLibrary } from '../../../infra/embedded/clickhouse/server-files.ts';
import { startClickhouse } from '../../../infra/embedded/clickhouse/start-clickhouse.ts';
import type { Part } from '../part.ts';

const title = 'ClickHouse';
const user = 'runlake';

/** The embedded ClickHouse of the npm package, run as a separate server. */
export const clickhouse: Part = {
  name: 'clickhouse',
  title,
  portCount: 1,
  async install() {
    findLibrary();
    return {};
  },
  async launch({ folder, ports: [port = 0], secret, logger }) {
    const engine = await startClickhouse({ folder, port, password: secret('clickhouse'), logger });
    return { exited: engine.exited.then(({ reason }) => reason), stop: () => engine.stop() };
  },
  values: ({ ports, secret }) => ({ url: `http://${user}:${secret('clickhouse')}@127.0.0.1:${ports[0]}/runlake` }),
  async check(values) {
    const { username, password, origin } = new URL(values.url ?? '');
    try {
      const answer = await fetch(origin, {
        method: 'POST',
        body: 'SELECT 1',
        headers: { 'X-ClickHouse-User': username, 'X-ClickHouse-Key': password, Connection: 'close' },
        signal: AbortSignal.timeout(5_000),
      });
      const text = (await answer.text()).trim();
      return answer.ok && text === '1' ? 'ready' : text.slice(0, 200);
    } catch (error) {
      return error instanceof Error ? String(error.cause ?? error.message) : String(error);
    }
  },
  exports: (values) => ({ RUNLAKE_CLICKHOUSE_URL: values.url ?? '' }),
};
