import { join } from 'node:path';
import { expect, it } from 'vitest';
import { loadStackSettings, stackParts } from './stack-settings.ts';

it('uses the default folder and free ports unless variables set others', () => {
  const defaults = loadStackSettings({ HOME: '/home/ann' });
  expect(defaults.folder).toBe(join(process.cwd(), '.runlake-stack'));
  expect(defaults.parts).toEqual(stackParts);
  expect(new Set(Object.values(defaults.ports))).toEqual(new Set([0]));
  expect(defaults.isCi).toBe(false);
  expect(defaults.clickhouseShards).toBe(1);

  const configured = loadStackSettings({
    RUNLAKE_STACK_DIR: '/tmp/stack',
    RUNLAKE_STACK_CACHE_DIR: '/tmp/cache',
    RUNLAKE_STACK_PARTS: 'redis, kafka',
    RUNLAKE_STACK_KAFKA_PORT: '9092',
    RUNLAKE_STACK_CLICKHOUSE_SHARDS: '2',
    CI: 'true',
  });
  expect(configured).toMatchObject({
    folder: '/tmp/stack',
    cacheFolder: '/tmp/cache',
    parts: ['kafka', 'redis'],
    clickhouseShards: 2,
    isCi: true,
  });
  expect(configured.ports).toMatchObject({ kafka: 9092, redis: 0 });
});

it.each([
  [{ XDG_CACHE_HOME: '/x' }, '/x/runlake/stack'],
  [{ XDG_CACHE_HOME: '/x', RUNLAKE_STACK_CACHE_DIR: '/y' }, '/y'],
])('stores downloads in the cache folder of the user: %j', (environment, folder) => {
  expect(loadStackSettings(environment).cacheFolder).toBe(folder);
});

it('reports all errors at once', () => {
  const read = () =>
    loadStackSettings({
      RUNLAKE_STACK_S3_PORT: '70000',
      RUNLAKE_STACK_REDIS_PORT: '-1',
      RUNLAKE_STACK_CLICKHOUSE_SHARDS: '3',
      RUNLAKE_STACK_PARTS: 'x',
    });
  expect(read).toThrow(
    /4 error.*RUNLAKE_STACK_REDIS_PORT='-1'.*RUNLAKE_STACK_S3_PORT='70000'.*'x' is not one of kafka.*SHARDS='3': must be 1 or 2/s,
  );
});
