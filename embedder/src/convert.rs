//! From `model.safetensors` to the ONNX graph that rten runs. Part of the set-up step; the result
//! is cached.
//!
//! What always holds: the same weights give the same bytes (tensors and nodes are written in a
//! fixed order), so the cached file has one checksum per converter version. Inputs are `input_ids`
//! and `attention_mask`, both `[batch, tokens]`, padded on the right; the output is
//! `last_hidden_state`, `[batch, tokens, 384]`. The token type is always 0 and its embedding is
//! folded into the positions.
//!
//! What it deliberately does not do: read other architectures. A tensor that is missing or has
//! another shape is an error that names it.

use std::cell::RefCell;

use rten_onnx::onnx::{
    AttributeProto, AttributeType, DataType, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, TensorShapeProto, TypeProto, TypeProtoTensor, ValueInfoProto,
};
use safetensors::{Dtype, SafeTensors};

/// Raised whenever the graph written here changes: a cached file of another version is made again.
pub const CONVERTER_VERSION: u32 = 1;

/// Length of a hidden state.
pub(crate) const HIDDEN: usize = 384;
const LAYERS: usize = 6;
const HEADS: i64 = 12;
const FEED_FORWARD: usize = 1536;
const VOCABULARY: usize = 30_522;
const POSITIONS: usize = 512;
const EPSILON: f32 = 1e-12;

/// Why weights could not be converted. All need another weights file.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// Not a safetensors file.
    #[error("the weights are not a safetensors file")]
    NotSafetensors(#[source] safetensors::SafeTensorError),
    /// A tensor the graph needs is not there.
    #[error("the weights have no tensor {name}")]
    Missing {
        /// Its name.
        name: String,
    },
    /// A tensor has another type or shape than the model's.
    #[error("tensor {name} is {found}, expected {expected}")]
    Shape {
        /// Its name.
        name: String,
        /// Type and shape in the file.
        found: String,
        /// Type and shape of the model.
        expected: String,
    },
    /// The graph cannot be encoded.
    #[error("cannot encode the converted model: {0}")]
    Write(String),
}

/// How attention is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// One operator (opset 23): no score matrix leaves a core's cache.
    Operator,
    /// Matrix products and softmax, as exporters write it. onnxruntime runs this form fastest;
    /// it is what benchmarks compare with.
    Plain,
}

/// Converts the bytes of `model.safetensors` to those of an ONNX file.
// Not `ModelProto::write_file`: it drops its buffered writer, and with it the error of a full disk.
pub fn convert(weights: &[u8], attention: Attention) -> Result<Vec<u8>, ConvertError> {
    let tensors = SafeTensors::deserialize(weights).map_err(ConvertError::NotSafetensors)?;
    let mut graph = GraphBuilder { weights: &tensors, graph: GraphProto::default() };
    graph.build(attention)?;
    let opset = match attention {
        Attention::Operator => 23,
        Attention::Plain => 20,
    };
    let model = ModelProto {
        ir_version: Some(10),
        graph: Some(graph.graph),
        opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(opset) }],
        producer_name: Some("lanekeeper".into()),
        producer_version: Some(CONVERTER_VERSION.to_string()),
        ..ModelProto::default()
    };
    model.write_buf().map_err(|error| ConvertError::Write(error.to_string()))
}

struct GraphBuilder<'a> {
    weights: &'a SafeTensors<'a>,
    graph: GraphProto,
}

impl GraphBuilder<'_> {
    fn build(&mut self, attention: Attention) -> Result<(), ConvertError> {
        self.graph.input = vec![
            value_info("input_ids", DataType::INT64, &["batch", "tokens"]),
            value_info("attention_mask", DataType::INT64, &["batch", "tokens"]),
        ];
        self.graph.output =
            vec![value_info("last_hidden_state", DataType::FLOAT, &["batch", "tokens", &HIDDEN.to_string()])];
        self.embeddings()?;
        self.mask(attention);
        let mut hidden = "embedded".to_owned();
        for layer in 0..LAYERS {
            hidden = self.layer(layer, &hidden, attention)?;
        }
        Ok(())
    }

    /// Word plus position (with the token type in it), normalised, as `embedded`.
    fn embeddings(&mut self) -> Result<(), ConvertError> {
        let words = self.read("embeddings.word_embeddings.weight", &[VOCABULARY, HIDDEN])?;
        self.floats("words", &[VOCABULARY, HIDDEN], &words);
        let mut positions = self.read("embeddings.position_embeddings.weight", &[POSITIONS, HIDDEN])?;
        let types = self.read("embeddings.token_type_embeddings.weight", &[2, HIDDEN])?;
        for row in positions.chunks_exact_mut(HIDDEN) {
            for (value, kind) in row.iter_mut().zip(&types[..HIDDEN]) {
                *value += kind;
            }
        }
        self.floats("positions", &[POSITIONS, HIDDEN], &positions);
        self.node("Gather", &["words", "input_ids"], "word_states", vec![]);
        self.node("Shape", &["input_ids"], "tokens", vec![int("start", 1), int("end", 2)]);
        self.ints("zero", &[1], &[0]);
        self.node("Slice", &["positions", "zero", "tokens", "zero"], "position_states", vec![]);
        self.node("Add", &["word_states", "position_states"], "embedding_sum", vec![]);
        self.layer_norm("embeddings.LayerNorm", "embedding_sum", "embedded")
    }

    /// The mask in the form the attention wants it.
    fn mask(&mut self, attention: Attention) {
        self.ints("mask_axes", &[2], &[1, 2]);
        match attention {
            Attention::Operator => {
                self.node("Cast", &["attention_mask"], "mask_bool", vec![int("to", i64::from(DataType::BOOL.0))]);
                self.node("Unsqueeze", &["mask_bool", "mask_axes"], "mask", vec![]);
            }
            Attention::Plain => {
                self.node("Cast", &["attention_mask"], "mask_float", vec![int("to", i64::from(DataType::FLOAT.0))]);
                self.node("Unsqueeze", &["mask_float", "mask_axes"], "mask_wide", vec![]);
                self.floats("one", &[], &[1.0]);
                self.floats("lowest", &[], &[f32::MIN]);
                self.node("Sub", &["one", "mask_wide"], "mask_gaps", vec![]);
                self.node("Mul", &["mask_gaps", "lowest"], "mask", vec![]);
            }
        }
    }

    fn layer(&mut self, layer: usize, hidden: &str, attention: Attention) -> Result<String, ConvertError> {
        let source = format!("encoder.layer.{layer}");
        let name = |part: &str| format!("layer{layer}.{part}");
        for part in ["query", "key", "value"] {
            self.linear(&format!("{source}.attention.self.{part}"), [HIDDEN, HIDDEN], hidden, &name(part))?;
        }
        match attention {
            Attention::Operator => self.node(
                "Attention",
                &[&name("query"), &name("key"), &name("value"), "mask"],
                &name("mixed"),
                vec![int("q_num_heads", HEADS), int("kv_num_heads", HEADS)],
            ),
            Attention::Plain => self.plain_attention(layer),
        }
        self.linear(
            &format!("{source}.attention.output.dense"),
            [HIDDEN, HIDDEN],
            &name("mixed"),
            &name("attention_dense"),
        )?;
        self.node("Add", &[&name("attention_dense"), hidden], &name("attention_sum"), vec![]);
        let attended = name("attended");
        self.layer_norm(&format!("{source}.attention.output.LayerNorm"), &name("attention_sum"), &attended)?;
        self.linear(&format!("{source}.intermediate.dense"), [HIDDEN, FEED_FORWARD], &attended, &name("wide"))?;
        self.node("Gelu", &[&name("wide")], &name("active"), vec![]);
        self.linear(&format!("{source}.output.dense"), [FEED_FORWARD, HIDDEN], &name("active"), &name("narrow"))?;
        self.node("Add", &[&name("narrow"), &attended], &name("output_sum"), vec![]);
        let output = if layer + 1 == LAYERS { "last_hidden_state".to_owned() } else { name("output") };
        self.layer_norm(&format!("{source}.output.LayerNorm"), &name("output_sum"), &output)?;
        Ok(output)
    }

    /// Scores, softmax and sum over heads, spelt out.
    fn plain_attention(&mut self, layer: usize) {
        let name = |part: &str| format!("layer{layer}.{part}");
        if layer == 0 {
            self.ints("split_heads", &[4], &[0, 0, HEADS, HIDDEN as i64 / HEADS]);
            self.ints("join_heads", &[3], &[0, 0, HIDDEN as i64]);
            self.floats("head_root", &[], &[(HIDDEN as f32 / HEADS as f32).sqrt()]);
        }
        for (part, order) in [("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])] {
            self.node("Reshape", &[&name(part), "split_heads"], &name(&format!("{part}_split")), vec![]);
            let heads = name(&format!("{part}_heads"));
            self.node("Transpose", &[&name(&format!("{part}_split"))], &heads, vec![ints("perm", &order)]);
        }
        self.node("MatMul", &[&name("query_heads"), &name("key_heads")], &name("products"), vec![]);
        self.node("Div", &[&name("products"), "head_root"], &name("scores"), vec![]);
        self.node("Add", &[&name("scores"), "mask"], &name("masked"), vec![]);
        self.node("Softmax", &[&name("masked")], &name("shares"), vec![int("axis", -1)]);
        self.node("MatMul", &[&name("shares"), &name("value_heads")], &name("mixed_heads"), vec![]);
        self.node("Transpose", &[&name("mixed_heads")], &name("mixed_split"), vec![ints("perm", &[0, 2, 1, 3])]);
        self.node("Reshape", &[&name("mixed_split"), "join_heads"], &name("mixed"), vec![]);
    }

    /// `output = input · weightᵀ + bias`. The file holds weights as [out, in]; the product wants
    /// [in, out], turned here once rather than at every load.
    fn linear(
        &mut self,
        source: &str,
        [inputs, outputs]: [usize; 2],
        input: &str,
        output: &str,
    ) -> Result<(), ConvertError> {
        let weight = self.read(&format!("{source}.weight"), &[outputs, inputs])?;
        let mut turned = vec![0.0; weight.len()];
        for (row, values) in weight.chunks_exact(inputs).enumerate() {
            for (column, value) in values.iter().enumerate() {
                turned[column * outputs + row] = *value;
            }
        }
        let bias = self.read(&format!("{source}.bias"), &[outputs])?;
        let (weight_name, bias_name, product) =
            (format!("{output}.weight"), format!("{output}.bias"), format!("{output}.product"));
        self.floats(&weight_name, &[inputs, outputs], &turned);
        self.floats(&bias_name, &[outputs], &bias);
        self.node("MatMul", &[input, &weight_name], &product, vec![]);
        self.node("Add", &[&product, &bias_name], output, vec![]);
        Ok(())
    }

    fn layer_norm(&mut self, source: &str, input: &str, output: &str) -> Result<(), ConvertError> {
        let scale = self.read(&format!("{source}.weight"), &[HIDDEN])?;
        let bias = self.read(&format!("{source}.bias"), &[HIDDEN])?;
        let (scale_name, bias_name) = (format!("{output}.scale"), format!("{output}.shift"));
        self.floats(&scale_name, &[HIDDEN], &scale);
        self.floats(&bias_name, &[HIDDEN], &bias);
        let attributes = vec![int("axis", -1), float("epsilon", EPSILON)];
        self.node("LayerNormalization", &[input, &scale_name, &bias_name], output, attributes);
        Ok(())
    }

    fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ConvertError> {
        let tensor = self.weights.tensor(name).map_err(|_| ConvertError::Missing { name: name.to_owned() })?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
            return Err(ConvertError::Shape {
                name: name.to_owned(),
                found: format!("{:?} {:?}", tensor.dtype(), tensor.shape()),
                expected: format!("{:?} {shape:?}", Dtype::F32),
            });
        }
        let (words, rest) = tensor.data().as_chunks::<4>();
        debug_assert!(rest.is_empty(), "the shape was checked");
        Ok(words.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    fn node(&mut self, operator: &str, inputs: &[&str], output: &str, attributes: Vec<AttributeProto>) {
        self.graph.node.push(NodeProto {
            name: Some(format!("{output}:{operator}")),
            op_type: Some(operator.to_owned()),
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: vec![output.to_owned()],
            attribute: attributes,
            ..NodeProto::default()
        });
    }

    fn floats(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.initializer(name, shape, DataType::FLOAT, bytes);
    }

    fn ints(&mut self, name: &str, shape: &[usize], values: &[i64]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.initializer(name, shape, DataType::INT64, bytes);
    }

    fn initializer(&mut self, name: &str, shape: &[usize], data_type: DataType, bytes: Vec<u8>) {
        self.graph.initializer.push(TensorProto {
            name: Some(name.to_owned()),
            dims: shape.iter().map(|&size| size as i64).collect(),
            data_type: Some(data_type),
            raw_data: Some(RefCell::new(bytes)),
            ..TensorProto::default()
        });
    }
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        i: Some(value),
        r#type: Some(AttributeType::INT),
        ..AttributeProto::default()
    }
}

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        ints: values.to_vec(),
        r#type: Some(AttributeType::INTS),
        ..AttributeProto::default()
    }
}

fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        f: Some(value),
        r#type: Some(AttributeType::FLOAT),
        ..AttributeProto::default()
    }
}

/// A tensor's type; a size in digits is fixed, any other is a symbol.
fn value_info(name: &str, data_type: DataType, shape: &[&str]) -> ValueInfoProto {
    let dim = shape
        .iter()
        .map(|size| match size.parse() {
            Ok(value) => Dimension { dim_value: Some(value), dim_param: None },
            Err(_) => Dimension { dim_value: None, dim_param: Some((*size).to_owned()) },
        })
        .collect();
    let tensor = TypeProtoTensor { elem_type: Some(data_type), shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto { tensor_type: Some(tensor), sequence: None }),
    }
}
