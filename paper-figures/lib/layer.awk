# The paper's counts for one transformer layer. model[NAME, column] is published/models.csv as
# read_table returns it; b sequences of s tokens; elements of 2 bytes. These are the paper's
# definitions: heads of hidden / heads, causal attention counted in full.

# Additions and multiplications of the forward pass, without an MoE layer's router.
function forward_flop(model, name, b, s,    h, heads_shared)
{
    h = number(model, name, "hidden")
    heads_shared = number(model, name, "kv_heads") / number(model, name, "heads")
    return 4 * b * s * h * h * (1 + heads_shared) + 4 * b * s * s * h + 6 * b * s * h * \
        number(model, name, "intermediate") * number(model, name, "active_experts")
}

# What backward needs of the forward pass, in bytes.
function activation_bytes(model, name, b, s,    heads_shared)
{
    heads_shared = number(model, name, "kv_heads") / number(model, name, "heads")
    return (12 + 4 * heads_shared) * b * s * number(model, name, "hidden") + 6 * b * s * \
        number(model, name, "intermediate") * number(model, name, "active_experts")
}

function is_moe(model, name)
{
    return number(model, name, "experts") > 1
}

# The router's share of the forward pass: none in a dense layer.
function router_flop(model, name, b, s)
{
    return is_moe(model, name) ? 2 * b * s * number(model, name, "hidden") * number(model, name, "experts") : 0
}

# Bytes of the layer's weights, all experts and the router included.
function weight_bytes(model, name,    h, heads_shared, bytes)
{
    h = number(model, name, "hidden")
    heads_shared = number(model, name, "kv_heads") / number(model, name, "heads")
    bytes = 4 * h * h + 4 * h * h * heads_shared + 6 * h * number(model, name, "intermediate") * \
        number(model, name, "experts")
    return bytes + (is_moe(model, name) ? 2 * h * number(model, name, "experts") : 0)
}

# Bytes of one activation between layers.
function boundary_bytes(model, name, b, s)
{
    return 2 * b * s * number(model, name, "hidden")
}
