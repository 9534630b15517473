import { stackPart } from '../engines/stack.ts';
import { freshStores } from '../engines/stores.ts';
import { Pipeline } from './pipeline.ts';

export interface OpenPipeline {
  readonly pipeline: Pipeline;
  close(): Promise<void>;
}

/** Starts a pipeline on the native stack's Kafka and registry, with its own databases. */
export async function openOnStack(environment: Readonly<Record<string, string>> = {}): Promise<OpenPipeline> {
  const stores = await freshStores();
  const { clickhouseUrl, databaseUrl } = stores;
  const clickhouseCluster = stores.environment.RUNLAKE_CLICKHOUSE_CLUSTER;
  const kafkaBrokers = stackPart('kafka')?.brokers ?? '';
  const schemaRegistryUrl = stackPart('registry')?.url ?? '';
  try {
    const pipeline = await Pipeline.started(
      { clickhouseUrl, clickhouseCluster, databaseUrl, kafkaBrokers, schemaRegistryUrl },
      environment,
    );
    return {
      pipeline,
      async close() {
        await pipeline.close();
        await stores.close();
      },
    };
  } catch (error) {
    await stores.close();
    throw error;
  }
}
