// Real Caffe reads and writes weights: `Blob::FromProto` and `ToProto` in `NetParameter`s, upgraded as Caffe's own loader upgrades them.
// `caffe_side write FOLDER SEED COUNT` makes files, `caffe_side read FILE...` reads some; both print one JSON object as the other sides do.
#include <fstream>
#include <iostream>
#include <random>

#include <boost/crc.hpp>

#include "caffe/blob.hpp"
#include "caffe/util/io.hpp"
#include "caffe/util/upgrade_proto.hpp"

using caffe::Blob;
using caffe::BlobProto;
using std::string;

// What is told of one tensor; `first` says whether a comma is due.
template <typename T>
void row(std::ostream& out, bool& first, const string& name, const Blob<T>& blob, const T* values) {
  boost::crc_32_type crc;
  crc.process_bytes(values, sizeof(T) * blob.count());
  out << (first ? "" : ", ") << '"' << name << "\": [\"" << (sizeof(T) == 8 ? "float64" : "float32") << "\", [";
  for (int axis = 0; axis < blob.num_axes(); ++axis) out << (axis ? ", " : "") << blob.shape(axis);
  out << "], " << crc.checksum() << ']';
  first = false;
}

template <typename T>
void one(std::ostream& out, bool& first, const string& name, const BlobProto& proto) {
  Blob<T> blob;
  blob.FromProto(proto);
  row(out, first, name, blob, blob.cpu_data());
  if (proto.diff_size() + proto.double_diff_size() > 0) row(out, first, name + ".diff", blob, blob.cpu_diff());
}

void tell(std::ostream& out, const caffe::NetParameter& net) {
  bool first = true;
  out << '{';
  for (const auto& layer : net.layer())
    for (int i = 0; i < layer.blobs_size(); ++i) {
      const BlobProto& proto = layer.blobs(i);
      const string name = layer.name() + '/' + std::to_string(i);
      proto.double_data_size() > 0 ? one<double>(out, first, name, proto) : one<float>(out, first, name, proto);
    }
  out << '}';
}

template <typename T>
void fill(std::mt19937& random, BlobProto* proto, bool diff) {
  std::vector<int> shape(random() % 5);
  for (int& extent : shape) extent = 1 + random() % 6;
  Blob<T> blob(shape);
  std::normal_distribution<double> normal;
  for (int i = 0; i < blob.count(); ++i) blob.mutable_cpu_data()[i] = normal(random);
  for (int i = 0; i < blob.count(); ++i) blob.mutable_cpu_diff()[i] = normal(random);
  blob.ToProto(proto, diff);
}

caffe::NetParameter made(std::mt19937& random) {
  caffe::NetParameter net;
  net.set_name("net");
  const bool diff = random() % 4 == 0;
  const unsigned layers = 1 + random() % 5;
  for (unsigned i = 0; i < layers; ++i) {
    caffe::LayerParameter* layer = net.add_layer();
    layer->set_name("layer" + std::to_string(i));
    layer->set_type("InnerProduct");
    const unsigned blobs = random() % 4;
    for (unsigned b = 0; b < blobs; ++b)
      random() % 4 == 0 ? fill<double>(random, layer->add_blobs(), diff) : fill<float>(random, layer->add_blobs(), diff);
  }
  return net;
}

string stem(const string& path) {
  const string name = path.substr(path.rfind('/') + 1);
  return name.substr(0, name.rfind('.'));
}

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  const bool write = string(argv[1]) == "write";
  std::mt19937 random(write ? std::stoul(argv[3]) : 0);
  const int count = write ? std::stoi(argv[4]) : argc - 2;
  std::cout << '{';
  for (int i = 0; i < count; ++i) {
    caffe::NetParameter net;
    string key;
    if (write) {
      net = made(random);
      key = std::to_string(1000 + i).substr(1);
      std::ofstream file(string(argv[2]) + '/' + key + ".caffemodel", std::ios::binary);
      net.SerializeToOstream(&file);
    } else {
      key = stem(argv[2 + i]);
      caffe::ReadNetParamsFromBinaryFileOrDie(argv[2 + i], &net);
    }
    std::cout << (i ? ", " : "") << '"' << key << "\": ";
    tell(std::cout, net);
  }
  std::cout << "}\n";
}
