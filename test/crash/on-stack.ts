import { stackPart } from '../engines/stack.ts';
import { clusterOf, freshStores } from '../engines/stores.ts';
import { Pipeline } from './pipeline.ts';

export interface OpenPipeline {
  readonly pipeline: Pipeline;
  close(): Promise<void>;
}

/** Starts a pipeline on the native stack's Kafka and registry, with its own databases. */
export async function openOnStack(environment: Readonly<Record<string, string>> = {}): Promise<OpenPipeline> {
  const stores = await freshStores();
  const { clickhouseUrl, databaseUrl } = stores;
  const kafkaBrokers = stackPart('kafka')?.brokers ?? '';
  const schemaRegistryUrl = stackPart('registry')?.url ?? '';
  try {
    const pipeline = await Pipeline.started(
      { clickhouseUrl, databaseUrl, kafkaBrokers, schemaRegistryUrl },
      { ...clusterOf(stores), ...environment },
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
