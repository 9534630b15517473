import { createLogger } from '../infra/telemetry/logger.ts';

/** Writes nothing. */
export const logger = createLogger('silent', 'test');
