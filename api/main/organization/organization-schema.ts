import { Type } from 'typebox';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import type { ListedOrganization, OrganizationRecord } from '../../../pipelines/tenants/read-organization.ts';
import { nullable, Timestamp, Uuid } from '../../server/formats.ts';

const Config = Type.Object(
  {
    plan_tier: Type.Null(),
    max_identities: Type.Integer(),
    max_workspaces: Type.Integer(),
    can_use_rbac: Type.Boolean(),
    can_use_bulk_export: Type.Boolean(),
    can_use_langgraph_cloud: Type.Boolean(),
    enable_granular_usage_reporting: Type.Boolean(),
  },
  { description: 'Capabilities and limits. -1: no limit.' },
);

const shared = {
  id: Uuid(),
  display_name: Type.String(),
  config: Config,
  is_personal: Type.Boolean(),
  tier: Type.Null(),
  reached_max_workspaces: Type.Boolean(),
  permissions: Type.Array(Type.String(), { description: 'Permissions of the key of the request.' }),
};

/** The fields that clients read. Those of the original API about payment and login are constant. */
export const OrganizationInfo = Type.Object({ ...shared, disabled: Type.Boolean() });

export const Organization = Type.Object({
  ...shared,
  connected_to_stripe: Type.Boolean(),
  connected_to_metronome: Type.Boolean(),
  payment_method: Type.Null(),
  has_cancelled: Type.Boolean(),
  end_of_billing_period: Type.Null(),
  current_plan: Type.Null(),
  upcoming_plan: Type.Null(),
});

/** An organisation in a list. */
export const OrganizationItem = Type.Object({
  id: Uuid(),
  display_name: Type.String(),
  tier: Type.Null(),
  created_at: Timestamp(),
  is_personal: Type.Boolean(),
  disabled: Type.Boolean({ description: 'True if the organization is deleted.' }),
  deletion: nullable(
    Type.Object({
      deleted_at: Timestamp(),
      workspaces: Type.Integer(),
      purged_workspaces: Type.Integer({ description: 'Number of workspaces whose data is deleted.' }),
    }),
    { description: 'Null if the organization is not deleted.' },
  ),
});

export function showItem({
  id,
  display_name,
  created_at,
  deleted_at,
  workspaces,
  purged_workspaces,
}: ListedOrganization) {
  return {
    ...{ id, display_name, created_at, tier: null, is_personal: false, disabled: deleted_at !== null },
    deletion: deleted_at === null ? null : { deleted_at, workspaces, purged_workspaces },
  };
}

/** Formats an organisation for the caller, with the fields that both schemas share. */
export function showOrganization({ id, display_name }: OrganizationRecord, caller: Caller) {
  return {
    id,
    display_name,
    config: {
      plan_tier: null,
      max_identities: -1,
      max_workspaces: -1,
      can_use_rbac: false,
      can_use_bulk_export: false,
      can_use_langgraph_cloud: false,
      enable_granular_usage_reporting: true,
    },
    is_personal: false,
    tier: null,
    reached_max_workspaces: false,
    permissions: [...caller.permissions],
  };
}
