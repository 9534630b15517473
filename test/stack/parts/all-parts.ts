import type { Part } from '../part.ts';
import type { StackPartName } from '../stack-settings.ts';
import { clickhouse } from './clickhouse.ts';
import { kafka } from './kafka.ts';
import { postgres } from './postgres.ts';
import { redis } from './redis.ts';
import { registry } from './registry.ts';
import { s3 } from './s3.ts';

export const allParts: Readonly<Record<StackPartName, Part>> = { kafka, registry, redis, s3, clickhouse, postgres };
