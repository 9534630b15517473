import type { Config } from '../../config/settings.ts';
import type { HealthCheck } from '../../telemetry/health-check.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { trustedAuthorities } from '../../tls/trusted-authorities.ts';
import { type KafkaAddress, KafkaAdmin } from './client.ts';
import { registryAddress } from './registry-request.ts';
import { Schemas } from './schema-registry.ts';

/** Health checks of Kafka and of the schema registry, separately. */
export function kafkaHealthChecks(admin: KafkaAdmin, schemas: Schemas): HealthCheck[] {
  return [
    { name: 'kafka', check: () => admin.call(async (client) => void (await client.describeCluster())) },
    { name: 'schema_registry', check: () => schemas.check() },
  ];
}

/** Health checks for use before the log is open. Connects on the first check. @throws TLS_FILE_UNUSABLE */
export function openKafkaProbe(
  config: KafkaAddress & Pick<Config, 'schemaRegistryUrl'>,
  logger: Logger,
): { readonly healthChecks: readonly HealthCheck[]; close(): Promise<void> } {
  const admin = new KafkaAdmin(config, logger);
  const schemas = new Schemas(registryAddress(config.schemaRegistryUrl ?? '', trustedAuthorities(config)));
  return { healthChecks: kafkaHealthChecks(admin, schemas), close: () => admin.close() };
}
