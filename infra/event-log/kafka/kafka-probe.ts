import type { Config } from '../../config/settings.ts';
import type { HealthCheck } from '../../telemetry/health.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { trustedAuthorities } from '../../tls/trusted-authorities.ts';
import { AdminLink } from './admin-link.ts';
import type { KafkaAddress } from './kafka-client.ts';
import { registryAddress } from './registry-request.ts';
import { Schemas } from './schema-registry.ts';

/** Health checks of Kafka and of the schema registry, separately. */
export function kafkaHealthChecks(admin: AdminLink, schemas: Schemas): HealthCheck[] {
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
  const admin = new AdminLink(config, logger);
  const schemas = new Schemas(registryAddress(config.schemaRegistryUrl ?? '', trustedAuthorities(config)));
  return { healthChecks: kafkaHealthChecks(admin, schemas), close: () => admin.close() };
}
