import type { TestProject } from 'vitest/node';
import { runningStack, serveAddresses } from './serve-addresses.ts';
import { dropTemplate, makeTemplate } from './template.ts';

/** Uses the servers of the native stack instead of embedded engines. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  let drop: (() => Promise<void>) | undefined;
  const close = await serveAddresses(project, async () => {
    const parts = runningStack()?.parts ?? {};
    const value = (name: string, field: string): string | undefined => {
      const part = parts[name];
      return part?.status === 'up' ? part.values[field] : undefined;
    };
    const redisUrl = value('redis', 'url');
    const kafkaBrokers = value('kafka', 'brokers');
    const schemaRegistryUrl = value('registry', 'url');
    const cluster = value('clickhouse', 'cluster');
    const engines = {
      ...(cluster !== undefined && { clickhouseCluster: cluster }),
      clickhouseUrl: value('clickhouse', 'url') ?? '',
      databaseUrl: value('postgres', 'url') ?? '',
    };
    const template = await makeTemplate(engines);
    drop = () => dropTemplate(engines, template);
    return {
      ...engines,
      template,
      ...(redisUrl === undefined ? {} : { redisUrl }),
      ...(kafkaBrokers !== undefined && schemaRegistryUrl !== undefined ? { kafkaBrokers, schemaRegistryUrl } : {}),
    };
  });
  return async () => {
    close();
    await drop?.();
  };
}
