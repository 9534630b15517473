import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace-base';
import type { Config } from '../../config/settings.ts';

/** Creates the sampler for OTEL_TRACES_SAMPLER and its argument (OpenTelemetry specification, SDK environment variables). */
export function samplerOf({ tracesSampler, tracesSamplerArg }: Config): Sampler {
  const name = tracesSampler.replace('parentbased_', '');
  const root =
    name === 'always_on'
      ? new AlwaysOnSampler()
      : name === 'always_off'
        ? new AlwaysOffSampler()
        : new TraceIdRatioBasedSampler(Number(tracesSamplerArg));
  return name === tracesSampler ? root : new ParentBasedSampler({ root });
}
