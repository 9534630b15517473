import { expect, it } from 'vitest';
import { computeSystemAssistantId, resolveAssistantId } from '../../../../pipelines/agents/assistants/assistant.ts';

it('is the id that clients compute, by Python of the reference server', () => {
  expect(computeSystemAssistantId('agent')).toBe('fe096781-5601-53d2-b2f6-0d3403f7e9ca');
});

it('takes any text for a graph id, also a lone surrogate', () => {
  expect(resolveAssistantId('\ud800')).toBe(computeSystemAssistantId('\ufffd'));
});
