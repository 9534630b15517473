import type { Topic } from '../../../schemas/topics.ts';
import type { Config } from '../../config/settings.ts';
import { runlakeError } from '../../errors/runlake-error.ts';
import { trustedAuthorities } from '../../tls/trusted-authorities.ts';
import { registryAddress, registryError, requestRegistry } from './registry-request.ts';
import { Schemas } from './schema-registry.ts';
import { topicNames } from './topic-names.ts';

const timeoutMs = 5_000;

/**
 * Checks that the registry has Runlake's subjects, and that the schemas of this release are compatible with the
 * registered ones. Changes nothing. @returns a summary for the operator. @throws REGISTRY_UNAVAILABLE,
 * ACCESS_DENIED_BY_STORE, SCHEMA_REFUSED.
 */
export async function inspectRegistry(
  config: Pick<Config, 'schemaRegistryUrl' | 'kafkaTopicPrefix' | 'tlsCaFile'>,
  topics: readonly Topic[],
): Promise<string> {
  const address = registryAddress(config.schemaRegistryUrl ?? '', trustedAuthorities(config));
  await new Schemas(address).check();
  const { body: listed } = await requestRegistry(address, '/subjects', timeoutMs);
  const subjects: unknown[] = Array.isArray(listed) ? listed : [];
  let missing = 0;
  for (const topic of topics) {
    const subject = topicNames(config.kafkaTopicPrefix).subjectOf(topic);
    if (!subjects.includes(subject)) {
      missing++;
      continue;
    }
    const path = `/compatibility/subjects/${encodeURIComponent(subject)}/versions/latest`;
    const { status, body } = await requestRegistry(address, path, timeoutMs, { schema: topic.schema });
    if (status !== 200) throw registryError(address, `it answered ${status} to a compatibility check of ${subject}`);
    if ((body as { is_compatible?: unknown } | undefined)?.is_compatible !== true) {
      throw runlakeError('SCHEMA_REFUSED', {
        subject,
        reason: 'the schema of this release is not compatible with the registered one',
      });
    }
  }
  return missing === 0
    ? 'answers; every schema is registered and compatible with this release'
    : `answers; ${missing} schemas are not registered yet; Runlake registers them when it starts`;
}
